"""UNITER's LMDB of features (Chen et al. 2020): an image's arrays by its file's name, as msgpack or npz."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.readers.regions.region_files import (
    DamagedRegionsError,
    ForeignRegions,
    RegionFiles,
    named_arrays,
    npz_arrays,
)
from workbench.core.errors import WorkbenchError

KEYS = b"__keys__"
PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First byte of a pickle; in msgpack it is an empty mapping."""


@dataclass(frozen=True)
class UniterLmdb(RegionFiles):
    """`norm_bb` are boxes in 0..1, `conf` the confidence, `soft_labels` the distribution with the background first.

    Needs the packages lmdb and, for files that are not compressed, msgpack.
    """

    @classmethod
    def detect(cls, path: Path) -> bool:
        return (path / "data.mdb").is_file() or (path.is_file() and path.suffix in (".mdb", ".lmdb"))

    def files(self) -> list[Path]:
        path = Path(self.path)
        return [path / "data.mdb" if path.is_dir() else path]

    def places(self) -> Iterator[tuple[str, Any]]:
        with _opened(self.path).begin() as reading:
            listed = reading.get(KEYS)
            if listed is not None:
                names = [str(name).encode() for name in json.loads(listed)]
            else:
                names = [bytes(key) for key, _ in reading.cursor()]
        for name in names:
            yield name.decode("utf-8", errors="replace").removesuffix(".npz"), name

    def read(self, place: Any) -> ForeignRegions:
        with _opened(self.path).begin() as reading:
            value = reading.get(place)
        if value is None:
            raise DamagedRegionsError("its name is listed, but has no entry")
        if value[:2] in PICKLED:
            raise WorkbenchError(
                f"{self.path} holds pickled arrays (ViLBERT's and VOLTA's LMDB), and a pickle may run any code. "
                "Name the .h5 or .tsv file that the LMDB was converted from"
            )
        return named_arrays(npz_arrays(value) if value.startswith(b"PK") else _unpacked(value))


@lru_cache(maxsize=8)
def _opened(path: str) -> Any:
    """The database, opened for reading once in each process."""
    lmdb = _package("lmdb")
    try:
        return lmdb.open(path, subdir=Path(path).is_dir(), readonly=True, lock=False, create=False)
    except lmdb.Error as error:
        raise WorkbenchError(f"{path} is not a readable LMDB: {error}") from error


def _unpacked(value: bytes) -> dict[str, Any]:
    """Arrays in the form of msgpack-numpy."""
    msgpack = _package("msgpack")
    try:
        found = msgpack.unpackb(value, object_hook=_array, strict_map_key=False)
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
        raise DamagedRegionsError(f"neither npz nor msgpack ({error})") from error
    if not isinstance(found, dict):
        raise DamagedRegionsError("msgpack of something else than arrays by name")
    return {str(name): array for name, array in found.items() if isinstance(array, np.ndarray)}


def _array(found: dict[Any, Any]) -> Any:
    if not found.get(b"nd", found.get("nd")):
        return found
    arrays = {(name.decode() if isinstance(name, bytes) else name): value for name, value in found.items()}
    kind = arrays["type"].decode() if isinstance(arrays["type"], bytes) else arrays["type"]
    if not isinstance(kind, str) or np.dtype(kind).hasobject:
        raise ValueError("an array of Python objects")
    return np.frombuffer(arrays["data"], kind).reshape(arrays["shape"])


def _package(name: str) -> Any:
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"features in an LMDB need the package {name!r}: pip install 'pretraining-workbench[features]'"
        ) from error
