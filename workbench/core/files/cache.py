"""A cache of remote corpus files, shared by all processes of a node and limited in size.

The name of a copy is its checksum, so a changed remote file never meets an old copy. Each copy has a lock file, whose
time of change is that of the copy's last use. A process that uses a copy, or is about to, shares the lock. A copy is
removed only by a process that holds its lock alone, the one used longest ago first. A second lock lets one process of
the node fetch a copy: others wait and use the result. Locks end with their processes. A copy is written under another
name and renamed once its checksum is right, so a killed process leaves no half copy; the next one to fetch it removes
the draft.

With `WORKBENCH_CACHE_LIMIT` the space of a copy is reserved before it is fetched. If the copies in use leave no room,
a process first closes the copies that it does not need at once, and waits. Then it stops with a message.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from weakref import WeakMethod

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import draft, explained, is_at, is_draft, sha256_of
from workbench.core.files.transfers import LIMIT, DamagedTransferError, StoreOptions, download, facts_of, repeated
from workbench.core.files.urls import url_of

logger = logging.getLogger(__name__)
LOCKS, RESERVED, ROOM, FETCHING = "locks", "reserved", ".room", ".fetching"
POLL = 0.1
"""Seconds between looks at a lock that another process holds."""


def default_folder() -> Path:
    """The cache folder: $WORKBENCH_CACHE, or ~/.cache/workbench.

    Raises:
        WorkbenchError: $WORKBENCH_CACHE is a URL.
    """
    named = os.environ.get("WORKBENCH_CACHE") or Path.home() / ".cache" / "workbench"
    if url_of(named) is not None:
        raise WorkbenchError(f"WORKBENCH_CACHE = {str(named)!r} is a URL; allowed: a folder of this machine")
    return Path(named)


def version_of(path: Path) -> str:
    """What a write to a file changes: its size, its times of change and its inode.

    Raises:
        OSError: there is no such file.
    """
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _as_fetched(copy: Path) -> str:
    with contextlib.suppress(OSError):
        return f"{version_of(copy)} {Path('/proc/sys/kernel/random/boot_id').read_text('ascii').strip()}"
    return version_of(copy)


class HeldCopy:
    """A local copy of a remote file. As long as this object lives, no process removes the copy."""

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.path, self._lock = path, lock

    @property
    def as_fetched(self) -> bool:
        """Whether the copy was not changed since it was fetched and its checksum compared, and the machine has run
        since then: the copy may not have reached the disk before a failure of the power."""
        return Path(self._lock.name).read_bytes() == _as_fetched(self.path).encode()

    def __del__(self) -> None:
        self._lock.close()


class BusyError(Exception):
    """Another process fetches the copy."""


class NoRoomError(Exception):
    """The copies in use leave no room for another."""


class RemoteFile(NamedTuple):
    """A remote file with its checksum, and its size in bytes if it is known.

    A file without a known checksum has a `check` instead, which raises a DamagedTransferError for damaged bytes.
    `sha256` is then that of its address and version.
    """

    url: str
    sha256: str
    size: int | None = None
    check: Callable[[bytes], None] | None = None


def version_at(url: str, check: Callable[[bytes], None]) -> RemoteFile:
    """The present version of a remote file without a known checksum, as the store identifies it.

    Raises:
        MachineError, WorkbenchError: see `repeated`.
    """
    facts = facts_of(url)
    version = "\n".join([url, *(f"{name} {facts[name]}" for name in sorted(facts))])
    return RemoteFile(url, hashlib.sha256(version.encode()).hexdigest(), facts["size"], check)


_closing: list[WeakMethod[Callable[[], None]]] = []


def on_shortage(close: Callable[[], None]) -> None:
    """Call a bound method when this process needs room in the cache: it closes copies that it can do without."""
    _closing[:] = [known for known in _closing if known() is not None]
    _closing.append(WeakMethod(close))


def close_spare() -> None:
    """Close all copies that this process can do without."""
    for known in list(_closing):
        if (close := known()) is not None:
            close()


class FileCache:
    """The copies of remote files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, file: RemoteFile) -> Path:
        """The path of the copy of a remote file."""
        return self.folder / file.sha256[:2] / f"{file.sha256}{Path(file.url.partition('?')[0]).suffix}"

    def hold(self, file: RemoteFile, *, ahead: bool = False, stop: threading.Event | None = None) -> HeldCopy:
        """The copy of a remote file, fetched if it does not exist.

        Args:
            ahead: the copy is not needed yet: nothing is waited for.
            stop: ends the fetching.

        Raises:
            MachineError: the store does not answer, or the disk is full. The same command may succeed later.
            WorkbenchError: the file cannot be read, has another checksum, or the limit of the cache is too small.
            BusyError, NoRoomError: with `ahead` only.
            AbandonedError: `stop` was set.
        """
        copy = self.path(file)
        lock = self.lock(file.sha256, fcntl.LOCK_SH, ahead)
        try:
            if not copy.is_file():
                with self.lock(file.sha256 + FETCHING, fcntl.LOCK_EX, ahead) as alone:
                    if not copy.is_file():
                        self._fetch(file, copy, ahead, stop)
                        Path(lock.name).write_text(_as_fetched(copy), "utf-8")
                    Path(alone.name).unlink(missing_ok=True)
            os.utime(lock.name)
        except BaseException:
            lock.close()
            raise
        return HeldCopy(copy, lock)

    def drop(self, file: RemoteFile) -> None:
        """Remove a damaged copy, also while processes use it: they keep what they have mapped."""
        self.path(file).unlink(missing_ok=True)
        self._lock_path(file.sha256).unlink(missing_ok=True)

    def _lock_path(self, name: str) -> Path:
        return self.folder / LOCKS / name[:2] / name

    def lock(self, name: str, mode: int, ahead: bool = False) -> BinaryIO:
        """The lock of a name, held until it is closed; with `ahead` a BusyError is raised instead of waiting."""
        place = self._lock_path(name)
        with explained(place):
            while True:
                place.parent.mkdir(parents=True, exist_ok=True)
                file = open(place, "ab")  # noqa: SIM115 (the lock lives as long as the file is open)
                try:
                    _flock(file, mode | (fcntl.LOCK_NB if ahead else 0))
                except BlockingIOError:
                    file.close()
                    raise BusyError from None
                if is_at(file, place):
                    return file
                file.close()  # the copy was removed in the meantime, and its lock with it

    def _fetch(self, file: RemoteFile, copy: Path, ahead: bool, stop: threading.Event | None) -> None:
        """Fetch a copy, which no other process fetches."""
        with explained(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            for left in copy.parent.glob(f".{file.sha256}*"):
                if is_draft(left, copy):  # of a killed process: it had the lock
                    left.unlink(missing_ok=True)
        with self._reserved(file, ahead):
            repeated(file.url, lambda: _fetched(file, copy, stop), stop)

    @contextlib.contextmanager
    def _reserved(self, file: RemoteFile, ahead: bool) -> Iterator[None]:
        """A block with room for a copy."""
        limit = StoreOptions.of_environment().limit
        if limit is None:
            yield
            return
        size = file.size if file.size is not None else int(facts_of(file.url)["size"])
        note = self.folder / RESERVED / file.sha256
        self._reserve(size, note, limit, file.url, ahead)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def _reserve(self, size: int, note: Path, limit: int, url: str, ahead: bool) -> None:
        patience, since = StoreOptions.of_environment().timeout, time.monotonic()
        closed = False
        while True:
            with self._alone():
                in_use = self._make_room(limit - size)
                if in_use <= limit - size:
                    note.parent.mkdir(parents=True, exist_ok=True)
                    with open(note, "wb") as file:
                        file.truncate(size)  # a file of this size without blocks
                    return
            if ahead:
                raise NoRoomError
            if not closed:
                close_spare()
                closed = True
            elif size > limit or time.monotonic() - since > patience:
                raise WorkbenchError(
                    f"{LIMIT} = {limit:,} bytes is too small: the copies in use take {in_use:,} bytes, and {url} needs "
                    f"{size:,} more. Each loader worker uses two groups of 8 shards: raise the limit to "
                    f"{in_use + size:,} bytes or more, or lower train.num_workers"
                )
            else:
                time.sleep(POLL)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A block that one process of the node runs at a time."""
        place = self.folder / ROOM
        with explained(place):
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(place, "ab") as file:
                if not _flock(file, fcntl.LOCK_EX):
                    raise WorkbenchError(
                        f"{LIMIT} needs locks, which the file system of {self.folder} does not have; choose another "
                        "folder (WORKBENCH_CACHE)"
                    )
                yield

    def _make_room(self, room: int) -> int:
        """Remove copies, the one used longest ago first, until the others take at most `room` bytes.

        Returns the bytes that are taken then: copies, and what other processes have reserved.
        """
        taken = self._reservations()
        found = []
        for copy in self._copies():
            with contextlib.suppress(FileNotFoundError):
                size = copy.stat().st_size
                found.append((self._last_use(copy), size, copy))
                taken += size
        for _, size, copy in sorted(found):
            if taken <= room:
                break
            if self.remove_unused(copy.stem, copy):
                taken -= size
        return taken

    def _copies(self) -> Iterator[Path]:
        for folder in self.folder.glob("[0-9a-f][0-9a-f]"):
            yield from (Path(entry) for entry in os.scandir(folder) if not entry.name.startswith("."))

    def _reservations(self) -> int:
        """The bytes that fetching processes have reserved; what killed processes reserved is removed."""
        taken = 0
        for note in (self.folder / RESERVED).glob("*"):
            try:
                self.lock(note.name + FETCHING, fcntl.LOCK_EX, True).close()
                note.unlink(missing_ok=True)
            except BusyError:
                with contextlib.suppress(FileNotFoundError):
                    taken += note.stat().st_size
        return taken

    def _last_use(self, copy: Path) -> float:
        with contextlib.suppress(FileNotFoundError):
            return self._lock_path(copy.stem).stat().st_mtime
        return copy.stat().st_mtime

    def remove_unused(self, name: str, copy: Path) -> bool:
        """Remove a file or folder, unless a process holds the lock of this name; returns whether it was removed."""
        try:
            with self.lock(name, fcntl.LOCK_EX, True) as lock:
                if copy.is_dir():
                    shutil.rmtree(copy)
                copy.unlink(missing_ok=True)
                Path(lock.name).unlink(missing_ok=True)
        except BusyError:
            return False
        logger.debug("removed %s from the cache", copy)
        return True


def _fetched(file: RemoteFile, copy: Path, stop: threading.Event | None) -> None:
    """Fetch a copy in one try."""
    failure: Exception | None = None
    with contextlib.suppress(_FailedError), draft(copy, durable=False) as target:
        try:
            found = download(file.url, target, stop)
            if file.check is not None:
                file.check(target.read_bytes())
            elif found != file.sha256:
                found = sha256_of(target)  # some libraries write the parts of a file in another order
            if file.check is None and found != file.sha256:
                raise DamagedTransferError(found, _other_checksum(found, file.sha256))
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                raise
            failure = error  # of the store: `draft` would take it for one of the disk
            raise _FailedError from error
    if failure is not None:
        raise failure


class _FailedError(Exception):
    pass


_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


def _flock(file: BinaryIO, mode: int) -> bool:
    """Lock a file; False on a file system without locks."""
    try:
        fcntl.flock(file, mode)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        return False
    return True


def _other_checksum(found: str, wanted: str) -> str:
    return (
        f"the checksum is {found}, but corpus.json has {wanted}: the file changed after it was indexed, or the "
        "transfer was damaged. Index it again, or restore the file"
    )
