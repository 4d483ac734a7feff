"""Writing a shard: an ordinary WebDataset tar and its index, completely or not at all.

A note next to the shards marks a corpus whose preparation is under way or was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import atomic, explained, sha256_of
from workbench.core.files.text_files import parse_json
from workbench.corpora.manifest import ShardInfo, parse_shard
from workbench.corpora.schema.schema import KINDS, READING, units_of
from workbench.corpora.shards.index import IndexBuilder, ShardIndex, index_name, record_checksum
from workbench.corpora.shards.record import NotFiniteError, characters_of, content_of, encode, without_nan
from workbench.sequences.sequence import Sample

_MEMBER_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_UNSAFE = re.compile(r"[^\w-]+")


def safe_key(text: str) -> str:
    """A valid WebDataset key: dots, slashes and white space become `_`."""
    return _UNSAFE.sub("_", text).strip("_") or "_"


def finished_shard(path: Path) -> ShardInfo | None:
    """The finished shard at `path`, or None if it is missing, half-written or of another size than in its index.

    A shard is finished when its index exists: the index is written last.
    """
    index_path = path.with_name(index_name(path.name))
    if not path.is_file() or not index_path.is_file():
        return None
    try:
        stored = ShardIndex(index_path).shard
        info = parse_shard({**stored, "index_sha256": sha256_of(index_path)})
    except (WorkbenchError, TypeError, ValueError):
        return None
    return info if path.stat().st_size == info.bytes else None


NOT_FINITE = "a number that is NaN or infinite, written as null"
"""The reason under which such numbers are counted; their records are not dropped."""


class ShardWriter:
    """Writer of one shard. Use it in a `with` block: an error inside leaves neither tar nor index.

    Args:
        path: the tar's path, ending in `.tar`; its index lies next to it.
        kind: `text`, `image-text` or `triples`.

    After the block `info` describes the finished shard.
    """

    def __init__(self, path: Path, *, kind: str) -> None:
        if path.suffix != ".tar" or "." in path.stem:
            raise WorkbenchError(f"{path}: the name of a shard must be NAME.tar without another dot")
        if kind not in KINDS:
            raise unknown("kind of corpus", kind, KINDS)
        self.path, self.kind = path, kind
        self.info: ShardInfo | None = None
        self._keys: set[str] = set()
        self._index = IndexBuilder(units_of(kind))
        self._fields: Counter[str] = Counter()
        self._characters: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ShardWriter:
        index_path = self.path.with_name(index_name(self.path.name))
        with explained(self.path):
            index_path.unlink(missing_ok=True)
        self._output = _Hashed(self._stack.enter_context(atomic(self.path)))
        self._tar = tarfile.open(fileobj=self._output, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[call-overload]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self._tar.close()
        stored: dict[str, Any] = {
            "name": self.path.name,
            "index": index_name(self.path.name),
            "records": self.records,
            "bytes": self.size,
            "sha256": self._output.hasher.hexdigest(),
            "lengths": self._index.totals(),
            "fields": dict(self._fields),
            "characters": dict(self._characters),
            "dropped": dict(self._dropped),
        }
        index_path = self.path.with_name(index_name(self.path.name))
        try:
            self._index.write(index_path, stored)
        except BaseException:
            self.path.unlink()
            raise
        self.info = ShardInfo(**stored, index_sha256=sha256_of(index_path))

    @property
    def records(self) -> int:
        return self._index.records

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._output.tell()

    def add(self, key: str, sample: Sample) -> None:
        """Encode and write a sample. NaN and infinity, which JSON does not have, become null and are counted.

        Raises:
            WorkbenchError: the sample does not fit the schema, its key is invalid or was written before, or the disk
                is full.
        """
        try:
            try:
                members, lengths, cuts = encode(sample, self.kind)
            except NotFiniteError:
                sample, count = without_nan(sample)
                members, lengths, cuts = encode(sample, self.kind)
                self.drop(NOT_FINITE, count)
        except WorkbenchError as error:
            raise WorkbenchError(f"{self.path.name}, key {key!r}: {error}") from error
        self._write(key, members, content_of(sample), lengths, cuts)
        self._fields.update(name for name in sample if name not in READING)
        self._characters.update(characters_of(sample))

    def drop(self, reason: str, count: int = 1) -> None:
        """Count samples that the preparation left out; the counts are stored with the shard."""
        self._dropped[reason] += count

    def _write(
        self,
        key: str,
        members: Mapping[str, bytes],
        content: int,
        lengths: Mapping[str, int],
        cuts: Sequence[int] | None = None,
    ) -> None:
        """Write a record's members next to each other."""
        check_key(key, self.path.name)
        if key in self._keys:
            raise WorkbenchError(
                f"{self.path.name}: the key {key!r} was written before; every record of a shard needs its own key"
            )
        if not members:
            raise WorkbenchError(f"{self.path.name}: the record {key!r} has no members")
        for name in members:
            if not _MEMBER_NAME.fullmatch(name):
                raise WorkbenchError(
                    f"{self.path.name}, key {key!r}: {name!r} cannot be a member's name; allowed: words of "
                    "lower-case letters, digits and _, joined by dots"
                )
        with explained(self.path):
            entries = [(name, self._append(f"{key}.{name}", data), len(data)) for name, data in members.items()]
        self._keys.add(key)
        self._index.add(key, entries, record_checksum(members.values()), content, lengths, cuts)

    def _append(self, name: str, data: bytes) -> int:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), 0o644
        self._tar.addfile(entry, io.BytesIO(data))
        return self._tar.offset - -(-len(data) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def check_key(key: str, shard: str) -> None:
    """Check a key.

    Raises:
        WorkbenchError: WebDataset would not read `key` back as one record's key.
    """
    if not key or not key.isprintable() or any(c in key for c in "./\\") or key.startswith("__"):
        raise WorkbenchError(
            f"{shard}: {key!r} cannot be a key: WebDataset splits names at the first dot and reads slashes as folders; "
            f"use letters, digits, - and _ (for example {safe_key(key)!r})"
        )


class _Hashed:
    """A file for tarfile that computes the checksum of the written bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.hasher = hashlib.sha256()
        self._file = file
        self._size = 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self.hasher.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


STATE = ".prepare.json"


def preparation_in(folder: Path) -> str | None:
    """The message about a folder whose preparation has not ended; None for other folders."""
    place = folder / STATE
    if not place.is_file():
        return None
    try:
        command = parse_json(place.read_bytes())["command"]
    except (OSError, ValueError, KeyError, TypeError):
        command = ""
    named = f": {command}" if isinstance(command, str) and command else ""
    return (
        f"{folder} is being prepared, or its preparation was stopped: run the same command again to continue it{named}"
    )
