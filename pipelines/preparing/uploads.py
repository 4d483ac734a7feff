"""A corpus that is written to an object store: its shards go there as they are finished, its corpus.json goes last.

The work is done in a local folder, as for any corpus. The process that wrote a shard uploads it: the tar, then the
index, whose presence says that the shard is finished. Then the tar is emptied here: it keeps its size as a hole without
content, so the disk holds no more than the shards in progress. A preparation that starts fetches the indexes that the
store has, on any machine, and skips their shards.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.preparing.splits import MAIN, part_folder
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.files.store_lock import store_locked
from workbench.core.files.stores import Store, scratch_folder
from workbench.core.files.urls import local_path, url_of
from workbench.corpora.manifest import FILE_NAME, ShardInfo, parse_manifest
from workbench.corpora.shards.index import index_name
from workbench.corpora.shards.writer import STATE

THREADS = 16
"""Indexes that are fetched at once."""


@dataclass(frozen=True)
class CorpusUpload:
    """The store of a corpus and its splits, and the local folder of the work."""

    url: str
    folder: Path

    @classmethod
    def to(cls, output: str | Path) -> CorpusUpload | None:
        """The upload of an output; None for a path."""
        url = url_of(output)
        return None if url is None else cls(url.rstrip("/"), scratch_folder(url))

    def store(self, part: str) -> Store:
        """The store's folder of a split."""
        return Store(f"{self.url}-{part}" if part else self.url)

    @contextmanager
    def held(self, parts: Sequence[str]) -> Iterator[None]:
        """A block in which the corpus is prepared in the local folder. Afterwards it is complete in the store.

        Raises:
            WorkbenchError: the store refuses the access, or another process prepares there.
            MachineError: the store does not answer; what is finished stays for the next run.
        """
        with store_locked(Store.writable(self.url)) as lock:
            self._fetch(parts)
            try:
                yield
            except BaseException:
                self._clean_up(parts)
                raise
            lock.check()
            self._finish(parts)
        for part in parts:
            shutil.rmtree(part_folder(self.folder, part), ignore_errors=True)

    def put_state(self, parts: Sequence[str]) -> None:
        """Upload the note that a preparation is under way."""
        for part in parts:
            self.store(part).put(part_folder(self.folder, part) / STATE, STATE)

    def put_file(self, path: Path) -> None:
        """Upload a file of the corpus's own folder."""
        self.store(MAIN).put(path, path.relative_to(self.folder).as_posix())

    def put_shard(self, part: str, path: Path) -> None:
        """Upload a finished shard, and free its space here."""
        store, index = self.store(part), index_name(path.name)
        store.put(path, path.name)
        store.put(path.with_name(index), index)
        _make_hole(path, path.stat().st_size)

    def _fetch(self, parts: Sequence[str]) -> None:
        """Make the local folders what the store has; what is not in the store is not finished.

        Raises:
            WorkbenchError: the store's folder holds shards that no preparation wrote.
        """
        known = False
        for part in parts:
            store, folder = self.store(part), part_folder(self.folder, part)
            shutil.rmtree(folder, ignore_errors=True)
            there = {name: size for name, size in store.files().items() if "/" not in name}
            known = known or STATE in there or FILE_NAME in there
            if not known and any(name.endswith(".tar") for name in there):
                raise WorkbenchError(f"{store} holds shards of another corpus; choose another --output")
            shards = [name for name in there if name.endswith(".tar") and index_name(name) in there]
            finished = {*shards, *map(index_name, shards)}
            wanted = [name for name in there if not name.endswith(".tar") and (name in finished or not _is_work(name))]
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(lambda name, store=store, folder=folder: store.get(name, folder / name), wanted))
            for name in shards:
                _make_hole(folder / name, there[name])

    def _finish(self, parts: Sequence[str]) -> None:
        """Upload corpus.json of each split, the corpus's own last, and remove what is not listed there.

        A worker may be lost between writing a shard and uploading it, and another take the shard as finished. So the
        shards that the store lacks are uploaded first.

        Raises:
            MachineError: a shard is gone from the store.
        """
        for part in reversed(parts):
            store, manifest = self.store(part), part_folder(self.folder, part) / FILE_NAME
            listed = set[str]()
            if manifest.is_file():
                shards = parse_manifest(manifest.read_bytes(), str(manifest)).shards
                listed = {name for info in shards for name in (info.name, info.index)}
                there = store.files()
                for info in shards:
                    if there.get(info.name) != info.bytes or info.index not in there:
                        self._put_again(part, info)
                for path in sorted(manifest.parent.iterdir()):
                    if path.is_file() and not _is_work(path.name) and path != manifest and path.name[0] != ".":
                        store.put(path, path.name)
                store.put(manifest, FILE_NAME)
            store.remove(name for name in _working_files(store) if name not in listed)

    def _put_again(self, part: str, info: ShardInfo) -> None:
        path = part_folder(self.folder, part) / info.name
        if sha256_of(path) != info.sha256:
            path.with_name(info.index).unlink()
            raise MachineError(
                f"{self.store(part).at(info.name)} is gone. Run the same command again to write it again"
            )
        self.put_shard(part, path)

    def _clean_up(self, parts: Sequence[str]) -> None:
        """After a failure that left nothing to resume here: remove the same in the store."""
        if (self.folder / STATE).exists() or (self.folder / FILE_NAME).exists():
            return
        for part in parts:
            store = self.store(part)
            store.remove(_working_files(store))


def _is_work(name: str) -> bool:
    """Whether it is a shard or an index."""
    return name.startswith("part-") and name.endswith((".tar", ".index"))


def _working_files(store: Store) -> list[str]:
    """Shards, indexes and the note of a preparation; the note last."""
    return [*filter(_is_work, store.files()), STATE]


def _make_hole(path: Path, size: int) -> None:
    """A file of a size without content."""
    with open(path, "wb") as file:
        os.truncate(file.fileno(), size)


def folder_of(output: str | Path) -> Path:
    """The local folder in which a corpus is prepared."""
    upload = CorpusUpload.to(output)
    return local_path(output) if upload is None else upload.folder
