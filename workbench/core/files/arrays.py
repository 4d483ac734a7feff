"""Arrays of a record as a member `.npz`: read without pickle, and with checked sizes.

A zip file and the array files in it declare their sizes. Both are checked before memory is allocated: 2 MB may inflate
to gigabytes, and 200 bytes may declare an array of terabytes.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.lib import format as npy

from workbench.core.errors import WorkbenchError

BYTES_LIMIT = 256 << 20
"""The limit on the arrays of one record in memory; 100 regions of 2,048 features take 0.8 MB."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DAMAGED = (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError)
"""The errors of zipfile and numpy on damaged, encrypted (RuntimeError) or too deeply nested contents
(RecursionError)."""


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an npz file with these arrays.

    Raises:
        WorkbenchError: an array holds Python objects, or all of them together are too large to be read again.
    """
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    unpicklable = [name for name, value in arrays.items() if value.dtype.hasobject]
    if unpicklable:
        raise WorkbenchError(f"arrays {', '.join(unpicklable)} hold Python objects; store numbers or fixed strings")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    if buffer.tell() > BYTES_LIMIT:
        raise WorkbenchError(
            f"arrays of {buffer.tell():,} bytes in one record; the limit is {BYTES_LIMIT:,}. Store smaller arrays"
        )
    return buffer.getvalue()


def unpack(data: bytes, member: str = "regions.npz") -> dict[str, np.ndarray]:
    """The arrays in the bytes of an npz file, with their stored types.

    Args:
        member: the name for messages.

    Raises:
        ValueError: damaged, larger than `BYTES_LIMIT`, or with Python objects in it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > BYTES_LIMIT:
                raise ValueError(f"its arrays take {size:,} bytes; the limit is {BYTES_LIMIT:,}")
            return {entry.filename.removesuffix(".npy"): _array(_member(archive, entry)) for entry in entries}
    except _DAMAGED as error:
        raise ValueError(f"member {member} is damaged: {error or type(error).__name__}") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, at most its declared size: data beyond that is not inflated."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("its compression is not one that numpy writes")
    with archive.open(member) as file:
        return file.read(member.file_size)


def _array(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array file of version {version}; known: 1.0 and 2.0")
    shape, column_major, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects; store numbers or fixed strings")
    count, left = math.prod(shape), len(data) - file.tell()
    if min(shape, default=0) < 0 or dtype.itemsize == 0 or count * dtype.itemsize > left:
        raise ValueError(f"an array of the shape {shape} and type {dtype} declared, and {left:,} bytes of it there")
    values = np.frombuffer(data, dtype, count, file.tell()) if count else np.empty(0, dtype)
    return values.reshape(shape, order="F" if column_major else "C").copy()
