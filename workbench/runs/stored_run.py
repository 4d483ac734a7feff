"""Runs on object stores: a local folder, and snapshots of it in the store.

A snapshot is the file `snapshot.json`: what training wrote, by name, each with the object that holds it, its size and
its checksum. It is written last. An object of a snapshot is never overwritten: a file that changed goes to an object of
another name. So a kill at any moment leaves the snapshot before, whole. `metrics.jsonl`, `log.txt`, `status.json`
and TensorBoard's files are the exception: any state of them is valid, and they are replaced.

Results (`evaluations/`, `figures/`, the report) belong to no snapshot. A command that writes some puts them there when
it has ended.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import FileCache, default_folder
from workbench.core.files.drafts import sha256_of
from workbench.core.files.store_lock import StoreLock
from workbench.core.files.stores import NoSuchFileError, Store, hash_of, local_copy, name_of, scratch_root
from workbench.core.files.text_files import parse_json
from workbench.core.files.urls import local_path, url_of
from workbench.core.local_copies import place_of, stands_for
from workbench.core.options.path_options import Remote
from workbench.runs.names import (
    CHECKPOINTS,
    DAMAGED_METRICS,
    EVALUATIONS,
    FIGURES,
    FILES,
    FOLDERS,
    FROZEN,
    LOG,
    METRICS,
    REPORT,
    SNAPSHOT,
    STATUS,
    TENSORBOARD,
    is_run,
)

logger = logging.getLogger(__name__)
TRAINED = {*FILES, *FOLDERS, FROZEN}
GROWING = {METRICS, DAMAGED_METRICS, LOG, STATUS, TENSORBOARD}
RESULTS = {EVALUATIONS, FIGURES, REPORT}
RUNS = "runs"
"""The folder of the cache with the local copies of runs."""
TRIES = 5
HASH = re.compile("[0-9a-f]{12}")
STEP = re.compile(rf"{CHECKPOINTS}/step-(\d+)/.*")


@dataclass(frozen=True)
class StoredFile:
    """A file of a snapshot: the name of its object, its bytes and its checksum."""

    object: str
    bytes: int
    sha256: str


Files = dict[str, StoredFile]


class StoredRun:
    """A run in a store, and its local folder.

    Args:
        lock: that of the store's folder, where the run is written.
    """

    def __init__(self, store: Store, folder: Path, lock: StoreLock | None = None) -> None:
        self.store, self.folder, self.lock = store, folder, lock
        self.committed: Files = {}
        self._sums: dict[str, tuple[tuple[int, int, int], str]] = {}

    def fetch(self, *, last: bool = False) -> None:
        """Make the local folder equal to the snapshot. Files that are equal already stay.

        Args:
            last: of the checkpoints only the last is needed.

        Raises:
            WorkbenchError: an object is missing or damaged.
            MachineError: the store does not answer, or the disk is full.
        """
        for tried in range(1, TRIES + 1):
            self.committed = read_snapshot(self.store) or {}
            wanted = _last_checkpoint(self.committed) if last else self.committed
            try:
                for name, file in wanted.items():
                    self._fetch(name, file)
                break
            except NoSuchFileError:  # a newer snapshot replaced this one meanwhile
                if tried == TRIES:
                    raise
        self._remove(TRAINED, wanted)

    def fetch_results(self) -> None:
        """Make the local results equal to those in the store."""
        there = {name: size for name, size in self.store.files().items() if _top(name) in RESULTS}
        for name, size in there.items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != size:
                self.store.get(name, path)
        self._remove(RESULTS, there)

    def push(self) -> None:
        """Write the local state to the store, and make it the run's snapshot.

        Raises:
            WorkbenchError: another process has taken over the run; nothing was committed.
            MachineError: the store does not answer; the snapshot before is whole.
        """
        files = {name: self._put(name) for name in sorted(self._local(TRAINED))}
        if self.lock is not None:
            self.lock.check()
        tree = {name: asdict(file) for name, file in files.items()}
        self.store.put_bytes(json.dumps({"files": tree}, indent=1).encode(), SNAPSHOT)
        before, self.committed = self.committed, files
        self.store.remove({file.object for file in before.values()} - {file.object for file in files.values()})

    def clear(self) -> None:
        """Remove objects that no snapshot has: what a killed process left."""
        known = {file.object for file in self.committed.values()}
        self.store.remove(name for name in self.store.files() if _top(name) in TRAINED and name not in known)

    def results(self) -> dict[str, tuple[int, int, int]]:
        """The local results with their versions."""
        return {name: _version(self.folder / name) for name in self._local(RESULTS)}

    def put_results(self, before: Mapping[str, tuple[int, int, int]]) -> None:
        """Write the results to the store that differ from those before."""
        for name, version in self.results().items():
            if before.get(name) != version:
                self.store.put(self.folder / name, name)

    def _fetch(self, name: str, file: StoredFile) -> None:
        path = self.folder / name
        if path.is_file() and path.stat().st_size == file.bytes and self._sha256(name) == file.sha256:
            return
        self.store.get(file.object, path)
        if _top(name) not in GROWING and self._sha256(name) != file.sha256:
            path.unlink()
            raise WorkbenchError(
                f"{self.store.at(file.object)} is damaged: its checksum is not the one in {SNAPSHOT}; restore it "
                "from a copy, or train in another place"
            )

    def _put(self, name: str) -> StoredFile:
        """Write a file to the store, unless the snapshot has it."""
        size, sha256, before = (self.folder / name).stat().st_size, self._sha256(name), self.committed.get(name)
        if before is not None and (before.bytes, before.sha256) == (size, sha256):
            return before
        taken = {file.object for file in self.committed.values()} if _top(name) not in GROWING else set()
        place = name if name not in taken else f"{name}.{sha256[:12]}"
        self.store.put(self.folder / name, place)
        return StoredFile(place, size, sha256)

    def _sha256(self, name: str) -> str:
        """The checksum of a local file; each version is read once."""
        version = _version(self.folder / name)
        if self._sums.get(name, (None,))[0] != version:
            self._sums[name] = version, sha256_of(self.folder / name)
        return self._sums[name][1]

    def _local(self, areas: set[str]) -> Iterator[str]:
        """The names of the local files of some areas, without drafts."""
        for area in sorted(areas):
            top = self.folder / area
            for path in [top] if top.is_file() else top.rglob("*"):
                parts = path.relative_to(self.folder).parts
                if path.is_file() and not any(part.startswith(".") for part in parts):
                    yield "/".join(parts)

    def _remove(self, areas: set[str], wanted: Mapping[str, Any]) -> None:
        """Remove the local files of some areas that are not wanted, and folders that are then empty."""
        for name in self._local(areas):
            if name not in wanted:
                (self.folder / name).unlink()
        for area in areas:
            for below, _, _ in os.walk(self.folder / area, topdown=False):
                if not os.listdir(below):
                    os.rmdir(below)


def read_snapshot(store: Store) -> Files | None:
    """The snapshot of a run; None if there is none.

    Raises:
        WorkbenchError: it is damaged.
    """
    data = store.read(SNAPSHOT)
    if data is None:
        return None
    try:
        files = {_inside(name): StoredFile(**file) for name, file in parse_json(data)["files"].items()}
        for file in files.values():
            _inside(file.object)
        return files
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WorkbenchError(f"{store.at(SNAPSHOT)} is damaged: {error}") from error


def _inside(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or _top(name) not in TRAINED:
        raise ValueError(f"{name!r} is no file of a run")
    return name


def _top(name: str) -> str:
    return name.partition("/")[0]


def _version(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _last_checkpoint(files: Files) -> Files:
    """The files without those of all checkpoints but the last."""
    steps = {name: int(found[1]) for name in files if (found := STEP.fullmatch(name))}
    last = max(steps.values(), default=0)
    return {name: file for name, file in files.items() if steps.get(name, last) == last}


NAMED = "workbench:"
"""What names of checkpoints to try begin with, which `python -m pipelines.demo checkpoints` puts into the cache."""


@contextmanager
def opened_run(place: str | Path, *, new: bool = False) -> Iterator[Path]:
    """A block in which a run, or another folder of a store, is a local path.

    The path of a URL is in the cache's `runs`: there, files are fetched that are new or have changed. Results that the
    block adds are written to the store at its end.

    Args:
        new: whether there may be nothing at the URL yet; then the path is that of an empty or missing folder.

    Raises:
        WorkbenchError: there is nothing at the URL, or it is damaged.
        MachineError: the store does not answer, or the disk is full.
    """
    if str(place).startswith(NAMED):
        yield _named_run(str(place).removeprefix(NAMED))
        return
    url = url_of(place)
    if url is None:
        path = local_path(place)
        refuse_copy(path)
        yield path
        return
    store = Store(url.rstrip("/"))
    run = StoredRun(store, stands_for(default_folder() / RUNS / hash_of(url) / name_of(url), url))
    if read_snapshot(store) is None and not (new and not store.files()):
        try:
            path = local_copy(store.url)
        except NoSuchFileError as error:
            raise WorkbenchError(f"there is no run or checkpoint at {store}: no file's name begins so") from error
        yield path
        return
    with FileCache(default_folder()).lock(hash_of(url), fcntl.LOCK_EX):  # one process of the node fetches it
        run.fetch(last=True)
        run.fetch_results()
    before = run.results()
    yield run.folder
    run.put_results(before)


def named_folder(name: str) -> Path:
    """Where the checkpoint of this name lies, whether it is there or not."""
    return default_folder() / "checkpoints" / name


def _named_run(name: str) -> Path:
    """
    Raises:
        WorkbenchError: it was not made on this machine.
    """
    folder = named_folder(name)
    if not name or not is_run(folder):
        there = sorted(path.name for path in folder.parent.glob("*") if is_run(path))
        raise WorkbenchError(
            f"{NAMED}{name}: this machine has no such checkpoint; it has {', '.join(there) or 'none'}. `python -m "
            "pipelines.demo checkpoints` trains small ones to try"
        )
    return folder


def refuse_copy(path: Path) -> None:
    """
    Raises:
        WorkbenchError: the path is that of the local copy of a run on a store, and its URL is not known.
    """
    home = path.absolute().parent
    copies = (default_folder() / RUNS, scratch_root())
    if HASH.fullmatch(home.name) and home.parent in copies and place_of(path) == str(path):
        raise WorkbenchError(
            f"{path} is in {home.parent}, where this machine keeps copies of runs on object stores; name the URL of "
            "the run. What is written here would be lost"
        )


def fetched_run(place: str | Path) -> Path:
    """The local path of a run or checkpoint; a URL is fetched (`opened_run`)."""
    with opened_run(place) as path:
        return path


def is_fetched(folder: Path) -> bool:
    """Whether a folder is the local copy of a URL (`opened_run`)."""
    return any(folder.is_relative_to(default_folder() / kind) for kind in (RUNS, "folders", "files"))


StoredFolder = Annotated[Path, Remote(opened_run)]
"""The type of an option that names a run or a checkpoint: a path, or a URL, which is fetched."""
