"""The members of a tar, grouped into records the way WebDataset groups them."""

from __future__ import annotations

import logging
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workbench.errors import WorkbenchError

logger = logging.getLogger(__name__)
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd", b"BZ": "bzip2", b"\xfd7": "xz"}


class Member(NamedTuple):
    """A member of a record: its name after the first dot, where its data begins in the tar, its size in bytes."""

    name: str
    offset: int
    size: int


def refuse_compressed(path: Path) -> None:
    """Raises WorkbenchError where the tar is compressed: a compressed tar cannot be read at an offset."""
    with open(path, "rb") as file:
        start = file.read(2)
    packer = _COMPRESSED.get(start)
    if packer:
        raise WorkbenchError(
            f"{path} is compressed ({packer}), so its records cannot be read one by one. Repack it, for example: "
            f"{packer} -dc '{path}' > '{path.parent / path.name.split('.')[0]}.tar'"
        )


def records(path: Path) -> Iterator[tuple[str, list[Member]]]:
    """(key, members) of every record of a tar, in order. The key is what stands before the base name's first dot.

    Raises:
        WorkbenchError: compressed, truncated or damaged tar; a key whose members are not side by side; a member that
            occurs twice. The message names shard and key.
    """
    refuse_compressed(path)
    seen: set[str] = set()
    key, members = "", list[Member]()
    for name, offset, size in _files(path):
        match = _NAME.fullmatch(name)
        if match is None or (name.startswith("__") and name.endswith("__")):
            continue
        prefix, extension = match.group(1), match.group(2).lower()
        if prefix != key:
            if members:
                yield key, members
            if prefix in seen:
                raise WorkbenchError(
                    f"{path}: the members of the key {prefix!r} are not side by side (member {name!r} comes after "
                    "another key), so a WebDataset reader would make two broken records of it. Sort the names and "
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


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    last, total = "", path.stat().st_size
    try:
        with tarfile.open(path, "r:") as tar:
            while (entry := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # tarfile keeps every entry, which grows with the shard
                last = entry.name
                if entry.isreg():
                    if entry.offset_data + entry.size > total:
                        raise tarfile.ReadError("unexpected end of data")
                    yield entry.name, entry.offset_data, entry.size
            _check_end(path, tar.offset, last)
    except tarfile.TarError as error:
        place = f"at or after member {last!r}" if last else "at its start"
        raise WorkbenchError(
            f"{path}: the tar is truncated or damaged {place} ({error}); fetch or make this shard again"
        ) from error


def _check_end(path: Path, offset: int, last: str) -> None:
    """tarfile takes a header that it cannot read for the end; the end is a block of zeros."""
    with open(path, "rb") as file:
        file.seek(offset)
        block = file.read(tarfile.BLOCKSIZE)
    if not block:
        logger.warning("%s ends after member %r without a tar's end mark; it may be truncated", path, last)
    elif len(block) < tarfile.BLOCKSIZE or block.strip(b"\0"):
        raise tarfile.ReadError(f"no valid header at byte {offset:,}")
