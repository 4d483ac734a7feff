"""The members of a tar, grouped into records as WebDataset groups them."""

from __future__ import annotations

import io
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from workbench.core.errors import WorkbenchError

logger = logging.getLogger(__name__)
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
LONGEST_HEADER = 1 << 20
_KINDS = {
    tarfile.SYMTYPE: "symbolic links",
    tarfile.LNKTYPE: "hard links",
    tarfile.CHRTYPE: "devices",
    tarfile.BLKTYPE: "devices",
    tarfile.FIFOTYPE: "pipes",
}
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd", b"BZ": "bzip2", b"\xfd7": "xz"}


class Member(NamedTuple):
    """A member of a record: its name after the first dot, the offset of its data in the tar, its size in bytes."""

    name: str
    offset: int
    size: int


def refuse_compressed(path: Path) -> None:
    """Refuse a compressed tar, which cannot be read at an offset.

    Raises:
        WorkbenchError: the tar is compressed.
    """
    with open(path, "rb") as file:
        start = file.read(2)
    packer = _COMPRESSED.get(start)
    if packer:
        raise WorkbenchError(
            f"{path} is compressed ({packer}), so its records cannot be read one by one. Repack it, for example: "
            f"{packer} -dc '{path}' > '{path.parent / path.name.split('.')[0]}.tar'"
        )


def records(path: Path, left_out: Counter[str] | None = None) -> Iterator[tuple[str, list[Member]]]:
    """(key, members) of every record of a tar, in order. The key is the name up to the base name's first dot.

    Args:
        left_out: counts the entries that are no files by their type (symbolic links, devices, ...).

    Raises:
        WorkbenchError: compressed, truncated or damaged tar; a name that is not UTF-8, a sparse file; a key whose
            members are not adjacent; a member that occurs twice. The message names shard and key.
    """
    refuse_compressed(path)
    seen: set[str] = set()
    key, members = "", list[Member]()
    for name, offset, size in _files(path, Counter() if left_out is None else left_out):
        match = _NAME.fullmatch(name)
        if match is None or (name.startswith("__") and name.endswith("__")):
            continue
        prefix, extension = match.group(1), match.group(2).lower()
        if prefix != key:
            if members:
                yield key, members
            if prefix in seen:
                raise WorkbenchError(
                    f"{path}: the members of the key {prefix!r} are not adjacent (member {name!r} comes after "
                    "another key), so a WebDataset reader would read two broken records. Sort the names and "
                    "repack: tar --sort=name -cf ..."
                )
            seen.add(prefix)
            key, members = prefix, []
        if any(extension == member.name for member in members):
            raise WorkbenchError(
                f"{path}: the key {key!r} has the member {extension!r} twice; every key must be unique"
            )
        members.append(Member(extension, offset, size))
    if members:
        yield key, members


def _files(path: Path, left_out: Counter[str]) -> Iterator[tuple[str, int, int]]:
    last, total, start = "", path.stat().st_size, 0
    try:
        with open(path, "rb") as file:
            while start < total:
                file.seek(start)
                with tarfile.open(fileobj=_Headers(file), mode="r:") as tar:
                    while (entry := tar.next()) is not None:
                        tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all entries
                        last = entry.name
                        if entry.isreg():
                            _check_entry(path, entry)
                            if entry.offset_data + entry.size > total:
                                raise tarfile.ReadError("unexpected end of data")
                            yield entry.name, entry.offset_data, entry.size
                        elif not entry.isdir():
                            left_out[_KINDS.get(entry.type, "entries of an unknown type")] += 1
                    end = tar.offset
                _check_end(path, end, last)
                start = _next_archive(file, end, total)
                if start < total:
                    logger.warning("%s: another tar begins after the end mark; its records are read too", path)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        place = f"at or after member {last!r}" if last else "at its start"
        raise WorkbenchError(
            f"{path}: the tar is truncated or damaged {place} ({error}); fetch or create this shard again"
        ) from error


def _next_archive(file: BinaryIO, end: int, total: int) -> int:
    """The beginning of the next archive in a file of several (`cat a.tar b.tar`), after zeros; or the file's end."""
    file.seek(end)
    at = end
    while block := file.read(LONGEST_HEADER):
        if rest := block.lstrip(b"\0"):
            return (at + len(block) - len(rest)) // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE
        at += len(block)
    return total


def _check_entry(path: Path, entry: tarfile.TarInfo) -> None:
    if entry.issparse():
        raise WorkbenchError(
            f"{path}: the member {entry.name!r} is stored as a sparse file, whose bytes are not contiguous. Repack "
            "without --sparse"
        )
    if not _is_text(entry.name):
        raise WorkbenchError(f"{path}: the name {entry.name!r} is not UTF-8; rename the file and repack")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Headers(io.BufferedIOBase):
    """The tar as a file for tarfile: only headers may be read, at most a mebibyte at once.

    Otherwise tarfile would try to allocate any amount of memory for a damaged length of a name.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= LONGEST_HEADER:
            raise tarfile.ReadError(f"a header requests {size} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _check_end(path: Path, offset: int, last: str) -> None:
    """Check that the end is a block of zeros: tarfile also ends at a header that it cannot read."""
    with open(path, "rb") as file:
        file.seek(offset)
        block = file.read(tarfile.BLOCKSIZE)
    if not block:
        logger.warning("%s ends after member %r without a tar's end mark; it may be truncated", path, last)
    elif len(block) < tarfile.BLOCKSIZE or block.strip(b"\0"):
        raise tarfile.ReadError(f"no valid header at byte {offset:,}")
