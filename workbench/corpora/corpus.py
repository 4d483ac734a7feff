"""A corpus opened for reading: shards mapped into memory, with random access to records."""

from __future__ import annotations

import logging
import mmap
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, overload

from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import FileCache, RemoteFile, default_folder, on_shortage
from workbench.core.files.checksums import matches
from workbench.core.files.urls import is_url, local_path, url_of
from workbench.corpora.foreign_record import decode_foreign
from workbench.corpora.index_bundle import IndexBundle
from workbench.corpora.manifest import FILE_NAME, Manifest, ShardInfo
from workbench.corpora.opened_manifests import manifest_at, remote_manifest
from workbench.corpora.remote_copies import RemoteCopies
from workbench.corpora.shards.index import ShardIndex, record_checksum
from workbench.corpora.shards.record import BadRecordError, decode
from workbench.corpora.shards.writer import preparation_in
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
OPEN_SHARDS = 128
"""The number of shards that stay mapped; each holds two file descriptors."""
LONG_RECORD = 1 << 16
"""The size in bytes from which the last decoded records are cached for their other windows."""
CACHED_RECORDS = 16
SMALL_BUNDLE = 64 << 20
"""Bytes up to which the indexes of a remote corpus are fetched together when one of them is needed."""
INDEXES_AHEAD = 32
"""Remote indexes that are fetched before they are needed, where many are and there is no bundle."""
MANY_INDEXES = 32
"""Local indexes from which they are read from the bundle, one after another, and not each from its file."""
SHARDS_AHEAD = 2
"""Remote shards that are fetched before they are needed, where records are read in their own order."""


class Shard:
    """An open shard. `raw` is the hot path: slices of the mapped tar, without parsing tar headers."""

    def __init__(self, path: Path, index: ShardIndex, info: ShardInfo, held: object = None) -> None:
        self.name, self.index, self.path = info.name, index, path
        self._held = held  # the lock on a cached copy
        size = path.stat().st_size
        if size != info.bytes:
            raise WorkbenchError(_wrong_size(path, size, index, info))
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._names = index.names
        # reading one integer of a memoryview takes a third of the time of a numpy scalar
        self._starts = index.member_starts.data
        self._ids = index.member_names.data
        self._offsets = index.member_offsets.data
        self._sizes = index.member_sizes.data

    def raw(self, record: int) -> dict[str, bytes]:
        """The members of a record, by name."""
        names, ids, offsets, sizes, data = self._names, self._ids, self._offsets, self._sizes, self._data
        members = {}
        for m in range(self._starts[record], self._starts[record + 1]):
            offset = offsets[m]
            members[names[ids[m]]] = data[offset : offset + sizes[m]]
        return members

    def size_of(self, record: int) -> int:
        """Bytes of a record's members."""
        return sum(self._sizes[m] for m in range(self._starts[record], self._starts[record + 1]))


class Corpus:
    """A corpus: the records of all shards in their order, iterable and indexable. `Corpus.open` opens one.

    It may be pickled and forked into workers. `name` is the folder's name, `kind` one of text, image-text, triples.
    `verify` says whether a shard's checksum is compared when the shard is opened; an index's checksum always is.
    """

    def __init__(self, place: str, manifest: Manifest, cache: Path, *, verify: bool = True) -> None:
        self.place, self.manifest, self.cache, self.verify = place, manifest, cache, verify
        self.name = place.rstrip("/").rsplit("/", 1)[-1]
        self.kind = manifest.kind
        self._shards: OrderedDict[int, Shard] = OrderedDict()
        self._indexes: OrderedDict[int, ShardIndex] = OrderedDict()
        self._cached: OrderedDict[tuple[int, int], Sample] = OrderedDict()
        self._bundle: IndexBundle | None = None
        self._needed: frozenset[int] = frozenset()
        self._run = range(0)
        self.is_remote = is_url(place) or any("://" in info.name and is_url(info.name) for info in manifest.shards)
        self._copies = RemoteCopies(cache)
        on_shortage(self._release)

    @classmethod
    def open(cls, place: str | Path, *, cache: str | Path | None = None, verify: bool = True) -> Self:
        """Open a corpus at a path or an fsspec URL.

        Args:
            place: the folder with corpus.json.
            cache: the folder for shards of a URL; by default $WORKBENCH_CACHE or ~/.cache/workbench.
            verify: compare the checksums of shards, once for each version of a file (`workbench.core.files.checksums`).

        Raises:
            WorkbenchError: the folder does not exist, is not a corpus, or has an unreadable manifest.
        """
        where = url_of(place) or str(local_path(place))
        folder = Path(cache) if cache is not None else default_folder()
        if is_url(where):
            manifest = remote_manifest(f"{where.rstrip('/')}/{FILE_NAME}", folder)
        else:
            path = Path(where).absolute()
            if not (path / FILE_NAME).is_file():
                raise WorkbenchError(_no_corpus(path))
            where, manifest = str(path), manifest_at(path / FILE_NAME)
        note("corpus", place, manifest.identity)
        return cls(where, manifest, folder, verify=verify)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place}: {self.records:,} records of kind {self.kind}>"

    def __len__(self) -> int:
        return self.records

    def __iter__(self) -> Iterator[Sample]:
        """Every stored record, in the order of the shards."""
        for shard, info in enumerate(self.shards):
            self.expect_next(shard)
            for record in range(info.records):
                yield self.read(shard, record)

    @overload
    def __getitem__(self, number: int) -> Sample: ...

    @overload
    def __getitem__(self, number: slice) -> list[Sample]: ...

    def __getitem__(self, number: int | slice) -> Sample | list[Sample]:
        """The number-th record, counted across the shards; a negative number counts from the end. A slice is a list.

        Raises:
            IndexError: there is no such record.
        """
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self.records))]
        record = operator.index(number) + (self.records if number < 0 else 0)
        for shard, info in enumerate(self.shards if record >= 0 else ()):
            if record < info.records:
                return self.read(shard, record)
            record -= info.records
        raise IndexError(f"record {number} of a corpus with {self.records:,} records")

    @property
    def shards(self) -> list[ShardInfo]:
        return self.manifest.shards

    @property
    def records(self) -> int:
        return self.manifest.records

    @property
    def identity(self) -> str:
        """A checksum of the content, see `Manifest.identity`."""
        return self.manifest.identity

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard; the index of a remote shard is fetched without the shard.

        Raises:
            WorkbenchError: it is missing, damaged, or not the one in corpus.json.
        """
        index = self._indexes.get(shard)
        if index is None:
            info = self.shards[shard]
            where = self._where(info.index)
            if is_url(where):
                index = self._remote_index(shard, where)
            else:
                index = self._local_index(info, shard)
            _keep(self._indexes, shard, index, OPEN_SHARDS)
        return index

    def shard(self, shard: int) -> Shard:
        """An open shard, by number.

        Raises:
            WorkbenchError: it is missing, truncated, changed, or cannot be fetched.
        """
        opened = self._shards.get(shard)
        if opened is None:
            info = self.shards[shard]
            where = self._where(info.name)
            if is_url(where):
                held = self._copies.copy(RemoteFile(where, info.sha256, info.bytes))
                opened = Shard(held.path, self.index(shard), info, held)
            else:
                path = self._local(info.name)
                opened = Shard(path, self.index(shard), info)
                if self.verify and not matches(path, info.sha256):
                    raise WorkbenchError(self._changed(path, "shard"))
            _keep(self._shards, shard, opened, OPEN_SHARDS)
        return opened

    def expect(self, now: Iterable[int], soon: Iterable[int]) -> None:
        """Say which shards are read now, and which soon: those of a remote corpus are fetched in the background, in
        this order. Open shards that are neither are closed, so that they may leave the cache."""
        if self.is_remote:
            self._copies.refuse_ranges("shards are expected")
            self._expect(now, soon)

    def _expect(self, now: Iterable[int], soon: Iterable[int]) -> None:
        now, soon = list(now), list(soon)
        self._needed = frozenset(now)
        for closed in [shard for shard in self._shards if shard not in {*now, *soon}]:
            del self._shards[closed]
        self._copies.expect(*(self._files(shards) for shards in (now, soon)))

    def expect_next(self, shard: int) -> None:
        """Say that the shards are read in their own order, and this one is next."""
        if self.is_remote:
            self._expect([shard], range(shard + 1, min(shard + 1 + SHARDS_AHEAD, len(self.shards))))

    @contextmanager
    def indexes_of(self, shards: range) -> Iterator[None]:
        """A block in which the indexes of these shards are used, in their order: they are read together."""
        self._run = shards
        try:
            yield
        finally:
            self._run = range(0)
            if self._bundle is not None and self.manifest.bundle["bytes"] > SMALL_BUNDLE:
                self._bundle = None
                self._indexes.clear()

    def _files(self, shards: Iterable[int]) -> list[RemoteFile]:
        """The remote files that reading these shards takes."""
        found = []
        for shard in shards:
            info = self.shards[shard]
            found.append(RemoteFile(self._where(info.name), info.sha256, info.bytes))
            if not self._bundled:
                found.append(RemoteFile(self._where(info.index), info.index_sha256))
        return [file for file in found if is_url(file.url)]

    @property
    def _bundled(self) -> bool:
        """Whether remote indexes are read from the bundle."""
        bundle = self.manifest.bundle
        if not bundle or not is_url(self._where(bundle["name"])):
            return False
        most = 2 * len(self._run) > len(self.shards)
        return bool(most or self._bundle is not None or bundle["bytes"] <= SMALL_BUNDLE)

    def _local_index(self, info: ShardInfo, shard: int) -> ShardIndex:
        bundle = self.manifest.bundle
        if len(self._run) >= MANY_INDEXES and bundle and not is_url(self._where(bundle["name"])):
            with suppress(OSError, ValueError, WorkbenchError):  # a bundle that is no help: the file says what is wrong
                self._bundle = self._bundle or IndexBundle(Path(self._where(bundle["name"])), len(self.shards))
                index = ShardIndex(self._bundle.path, self._bundle.index(shard))
                if index.sha256() == info.index_sha256:
                    return index
        path = self._local(info.index)
        if not matches(path, info.index_sha256):
            raise WorkbenchError(self._changed(path, "index"))
        return ShardIndex(path)

    def _remote_index(self, shard: int, where: str) -> ShardIndex:
        info, bundle = self.shards[shard], self.manifest.bundle
        if self._bundled:
            if self._bundle is None:
                held = self._copies.copy(RemoteFile(self._where(bundle["name"]), bundle["sha256"], bundle["bytes"]))
                self._bundle = IndexBundle(held.path, len(self.shards))
                self._bundle.held = held
            index = ShardIndex(self._bundle.path, self._bundle.index(shard))
            if index.sha256() != info.index_sha256:
                raise WorkbenchError(self._changed(self._bundle.path, f"index of {info.name}"))
            return index
        if shard in self._run:
            near = self.shards[shard : min(shard + INDEXES_AHEAD, self._run.stop)]
            files = [RemoteFile(self._where(each.index), each.index_sha256) for each in near]
            self._copies.expect(files[:1], files[1:])
        held = self._copies.copy(RemoteFile(where, info.index_sha256))
        index = ShardIndex(held.path)
        index.held = held
        return index

    def _release(self) -> None:
        """Close what is not needed now, as there is no room in the cache."""
        if self.is_remote:
            for closed in [shard for shard in self._shards if shard not in self._needed]:
                del self._shards[closed]
            self._indexes.clear()
            self._copies.release()

    def wrong_sizes(self) -> list[str]:
        """Messages about the local shards whose size differs from corpus.json. No file is opened, so this also works
        after a mapped file was truncated."""
        found = []
        for info in self.shards:
            where = self._where(info.name)
            path = FileCache(self.cache).path(RemoteFile(where, info.sha256)) if is_url(where) else Path(where)
            if path.is_file() and (size := path.stat().st_size) != info.bytes:
                found.append(_other_size(path, size, info))
        return found

    def raw(self, shard: int, record: int) -> dict[str, bytes]:
        """The members of a record as bytes."""
        opened = self._shards.get(shard)
        if opened is None:
            if self.is_remote and (members := self._record_alone(shard, record)) is not None:
                return members
            opened = self.shard(shard)
        return opened.raw(record)

    def _record_alone(self, shard: int, record: int) -> dict[str, bytes] | None:
        """The members of a record, read without its remote shard, with the right checksum; None if they are not."""
        info, index = self.shards[shard], self.index(shard)
        file, checksum = RemoteFile(self._where(info.name), info.sha256, info.bytes), index.checksum(record)
        if checksum is None or not is_url(file.url):
            return None
        places = index.members(record)
        start, end = min(at for _, at, _ in places), max(at + size for _, at, size in places)
        data = self._copies.byte_range(file, start, end)
        if data is None:
            return None
        members = {name: data[at - start : at - start + size] for name, at, size in places}
        if record_checksum(members.values()) != checksum:
            self._copies.refuse_ranges(f"another checksum of record {record} of {file.url}")
            return None
        return members

    def read(self, shard: int, record: int) -> Sample:
        """A record as a sample. Long records are cached for a while: do not change the sample's lists in place.

        Raises:
            BadRecordError: a member is damaged; the message names shard, key and reason.
        """
        cached = self._cached.get((shard, record))
        if cached is not None:
            return dict(cached)
        members = self.raw(shard, record)
        key = self.index(shard).key(record)
        try:
            sample = decode_foreign(members, self.kind) if self.manifest.foreign else decode(members)
        except ValueError as error:
            reason, _, detail = str(error).partition(": ")
            raise BadRecordError(self._where(self.shards[shard].name), key, reason, detail) from error
        sample["key"], sample["corpus"] = key, self.name
        if self.kind == "text" and sum(map(len, members.values())) >= LONG_RECORD:
            _keep(self._cached, (shard, record), sample, CACHED_RECORDS)
            return dict(sample)
        return sample

    def _local(self, name: str) -> Path:
        path = Path(self._where(name))
        if not path.is_file():
            raise WorkbenchError(
                f"{path} is listed in {self.place}/{FILE_NAME} but is missing; restore it, or {self._repair}"
            )
        return path

    @property
    def _repair(self) -> str:
        again = "index it" if self.manifest.foreign else "prepare it"
        return f"{again} again with the same command"

    def _changed(self, path: Path, what: str) -> str:
        unless = "" if what != "shard" else "; train.verify=false reads it as it is"
        return (
            f"{path}: the checksum of this {what} differs from the one in {self.place}/{FILE_NAME}: it was changed or "
            f"damaged after it was written. Restore it, or {self._repair}{unless}"
        )

    def _where(self, name: str) -> str:
        return name if is_url(name) or name.startswith("/") else f"{self.place.rstrip('/')}/{name}"

    def __getstate__(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"_shards": OrderedDict(), "_indexes": OrderedDict(), "_cached": OrderedDict()}
        return self.__dict__ | empty | {"_bundle": None, "_needed": frozenset()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        on_shortage(self._release)


def _keep(store: OrderedDict[Any, Any], key: Any, value: Any, limit: int) -> None:
    store[key] = value
    if len(store) > limit:
        store.popitem(last=False)


def _other_size(path: Path, size: int, info: ShardInfo) -> str:
    return f"shard {path}: it has {size} bytes, but had {info.bytes} when it was indexed"


def _wrong_size(path: Path, size: int, index: ShardIndex, info: ShardInfo) -> str:
    message = _other_size(path, size, info)
    if size > info.bytes:
        return f"{message}: it was changed; index it again"
    ends = index.member_offsets + index.member_sizes
    lost = (ends > size).nonzero()[0]
    if not len(lost):
        return f"{message}: it is truncated; fetch or prepare it again"
    record = int((index.member_starts <= lost[0]).sum()) - 1
    return (
        f"{message}: it is truncated in or before key {index.key(record)!r}, and {index.records - record} of "
        f"{index.records} records are lost; fetch or prepare it again"
    )


def _no_corpus(path: Path) -> str:
    if not path.exists():
        return f"there is no corpus at {path}: the folder does not exist"
    tars = sorted(p.name for p in path.glob("*.tar")) if path.is_dir() else []
    if (unfinished := preparation_in(path)) is not None:
        return unfinished
    if tars:
        return f"{path} holds {len(tars)} tars but no {FILE_NAME}; index them with `workbench index '{path}'`"
    return f"{path} is not a corpus: it has no {FILE_NAME}; create one with `workbench prepare`"
