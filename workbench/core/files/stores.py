"""Folders of object stores, read and written through fsspec.

A file of an object store appears whole or not at all, which is what a commit rests on. Other protocols (http, ftp,
sftp, hdfs) show half-written files or cannot be written, so nothing is written there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rich.markup import escape

from workbench.core.errors import MachineError, WorkbenchError, nearest
from workbench.core.files.cache import FileCache, default_folder
from workbench.core.files.drafts import draft
from workbench.core.files.transfers import NO_FILE, behind, download, opened, repeated, said
from workbench.core.files.urls import WRITABLE, WRITTEN, local_path, url_of
from workbench.core.local_copies import stands_for
from workbench.core.terminal import Terminal

SCRATCH = "WORKBENCH_SCRATCH"
IDENTITIES = ("size", "ETag", "etag", "md5Hash", "blob_id", "mtime", "LastModified", "created")
"""What stores say about a file that is another one when the file is written again."""
THREADS = 8
"""Files of a folder that are fetched at once."""
CORPUS, SHARDS = "corpus.json", (".tar", ".index", ".bundle")
"""The file that makes a folder a corpus, and how the names of its shards and of their indexes end."""
WEIGHTS, OTHER_WEIGHTS = "model.safetensors", (".bin", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth", ".tflite")
"""The file that makes a folder a checkpoint, and how the names of the same weights in other forms end."""
CHANGES = 5
"""Versions of a folder that a process begins to fetch at most."""
Answer = TypeVar("Answer")


class NoSuchFileError(WorkbenchError):
    """There is no such file in the store."""


class _ExistsError(WorkbenchError):
    """There is such a file already."""


@dataclass(frozen=True)
class Store:
    """A folder of an object store. Names of files are relative to its URL."""

    url: str

    @classmethod
    def writable(cls, url: str) -> Store:
        """A folder that is to be written: a file is written to it and removed again.

        Raises:
            WorkbenchError: the protocol has no whole files, or the store refuses the access.
            MachineError: the store does not answer.
        """
        protocol = url.partition("://")[0]
        if protocol not in WRITABLE:
            raise WorkbenchError(f"{url}: nothing is written by {protocol}; allowed: {WRITTEN}")
        store = cls(url.rstrip("/"))
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            store.put_bytes(b"", probe)
        except NoSuchFileError as error:
            raise NoSuchFileError(f"{url} cannot be written: there is no such bucket; check the address") from error
        store.remove([probe])
        return store

    def __str__(self) -> str:
        return self.url

    def at(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.url}/{name}" if name else self.url

    def files(self) -> dict[str, int]:
        """The sizes of all files below the folder, by name; empty if there is no such folder."""
        return {name: facts["size"] or 0 for name, facts in self._found().items()}

    def names(self) -> list[str]:
        """The names of the files and folders in the folder; none if there is no such folder."""
        files, root = self._opened("")
        try:
            found = self._said("", lambda: files.ls(root, detail=False))
        except NoSuchFileError:
            return []
        return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in found]

    def versions(self) -> dict[str, str]:
        """What changes when one of these files is written again (`version`), by name."""
        return {name: _version(facts) for name, facts in self._found().items()}

    def _found(self) -> dict[str, dict[str, Any]]:
        """What the store says about each file below the folder, by name.

        Raises:
            WorkbenchError: a name leads out of the folder, or the store refuses the access.
            MachineError: the store does not answer.
        """
        files, root = self._opened("")
        files.invalidate_cache()
        try:
            found = self._said("", lambda: files.find(root, detail=True))
        except NoSuchFileError:
            return {}
        prefix = root.strip("/") + "/"
        named = {path.lstrip("/"): info for path, info in found.items() if info["type"] == "file"}
        below = {path.removeprefix(prefix): info for path, info in named.items() if path.startswith(prefix)}
        for name in below:  # whoever fetches a file makes a path of its name
            if any(part in ("", "..") for part in name.split("/")):
                raise WorkbenchError(f"{self.at(name)} leads out of its folder; rename the file")
        return below

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        files, path = self._opened(name)
        files.invalidate_cache()
        try:
            return bytes(self._said(name, lambda: files.cat_file(path)))
        except NoSuchFileError:
            return None

    def get(self, name: str, target: Path) -> None:
        """Fetch a file; `target` is replaced once all of it is there.

        Raises:
            NoSuchFileError: there is none.
        """
        with draft(target) as temporary:
            self._said(name, lambda: download(self.at(name), temporary))

    def version(self, name: str) -> str:
        """What changes when a file is written again: its size and, where the store has them, its ETag or its time.

        Raises:
            NoSuchFileError: there is none.
        """
        files, path = self._opened(name)
        files.invalidate_cache()
        facts = self._said(name, lambda: files.info(path))
        if facts["type"] != "file":
            raise NoSuchFileError(f"{self.at(name)} is no file; name one")
        return _version(facts)

    def put(self, source: Path, name: str) -> None:
        """Write a local file to the store."""
        files, path = self._opened(name)
        self._said(name, lambda: files.put_file(str(source), path), writes=True)

    def put_bytes(self, data: bytes, name: str, *, new: bool = False) -> bool:
        """Write a small file.

        Args:
            new: only if there is no such file. Stores without exclusive writing compare and write one after the other.

        Returns:
            Whether it was written.
        """
        files, path = self._opened(name)
        mode = {"mode": "create"} if new else {}
        try:
            self._said(name, lambda: files.pipe_file(path, data, **mode), writes=True)
        except _ExistsError:
            return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are none."""
        for name in names:
            files, path = self._opened(name)
            try:
                self._said(name, lambda files=files, path=path: files.rm_file(path), writes=True)  # type: ignore[misc]
            except NoSuchFileError:
                continue

    def _opened(self, name: str) -> tuple[Any, str]:
        try:
            files, path = opened(self.at(name))
        except (ImportError, ValueError) as error:
            raise WorkbenchError(f"{self.url} cannot be opened: {error}") from error
        return files, str(path)

    def _said(self, name: str, action: Callable[[], Answer], *, writes: bool = False) -> Answer:
        """The result of an action on a file, tried again after errors that may pass.

        Raises:
            NoSuchFileError: there is no such file.
            WorkbenchError: the store refuses the access.
            MachineError: the store does not answer.
        """

        def attempt() -> Answer:
            try:
                return action()
            except FileExistsError as error:
                raise _ExistsError(f"{self.at(name)} exists already") from error
            except FileNotFoundError as error:
                if (cause := behind(error)) is not error:
                    raise cause from None
                reason = f" ({found})" if (found := said(error)) != NO_FILE else ""
                raise NoSuchFileError(f"there is no {self.at(name)}{reason}; check the address") from error

        return repeated(self.at(name), attempt, writes=writes)


def _version(facts: Mapping[str, Any]) -> str:
    stated = [facts.get(key) for key in IDENTITIES]
    return repr([str(each) for each in stated if each is not None])


@contextmanager
def uploaded(url: str) -> Iterator[Path]:
    """A local file that is written to the store when the block ends without an error.

    Raises:
        WorkbenchError: the store refuses the access, or the URL names no file.
        MachineError: the store does not answer.
    """
    folder, _, name = url.rstrip("/").rpartition("/")
    if not name or folder.endswith("/"):
        raise WorkbenchError(f"{url} names no file; add one")
    store = Store.writable(folder)
    with tempfile.TemporaryDirectory() as scratch:
        yield (path := stands_for(Path(scratch, name), url))
        if path.is_file():
            store.put(path, name)
            Terminal(stderr=True).print(f"uploaded {escape(url)}", highlight=False)


@contextmanager
def uploaded_folder(url: str, *, replace: bool = False) -> Iterator[Path]:
    """The path of a local folder, which does not exist yet. When the block ends without an error, its files are written
    to the store, JSON files last: they say what the others are.

    Args:
        replace: whether there may be other files at the URL, which are removed first.

    Raises:
        WorkbenchError: the store refuses the access, or there are files at the URL.
        MachineError: the store does not answer.
    """
    store = Store.writable(url.rstrip("/"))
    there = sorted(store.files())
    if there and not replace:
        raise WorkbenchError(f"{url} has files already, such as {there[0]}; remove them, or name another folder")
    with tempfile.TemporaryDirectory() as scratch:
        yield (folder := stands_for(Path(scratch, name_of(url)), url))
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        store.remove(there)
        with ThreadPoolExecutor(THREADS) as pool:
            for last in (False, True):
                list(pool.map(lambda name: store.put(folder / name, name), [n for n in names if _is_last(n) == last]))
        Terminal(stderr=True).print(f"uploaded {escape(url)}", highlight=False)


def _is_last(name: str) -> bool:
    return name.endswith(".json")


def local_copy(url: str) -> Path:
    """The local copy of a file or folder at a URL.

    It is fetched once for all processes of a node, and again when it has changed in the store. Another version has
    another path, so the copy that a process uses stays as it is while the process lives.

    Raises:
        WorkbenchError: there is neither.
        MachineError: the store does not answer, or the disk is full.
    """
    try:
        return fetched(url)
    except NoSuchFileError as error:
        folder = fetched_folder(Store(url.rstrip("/")))
        if folder is None:
            raise NoSuchFileError(f"there is no file or folder {url}; check the address{_near(url)}") from error
        return folder


def _near(url: str) -> str:
    """The nearest name in the folder of a URL where nothing is, in words; empty where none is near."""
    folder, _, name = url.rstrip("/").rpartition("/")
    try:
        names = Store(folder).names()
    except WorkbenchError:
        return ""
    close = nearest(name, names)
    return f". Did you mean {folder}/{close[0]}?" if close else ""


def path_at(place: str | os.PathLike[str]) -> Path:
    """The path of a place that is read: a URL's local copy.

    Raises:
        WorkbenchError, MachineError: as `local_copy`.
    """
    url = url_of(place)
    return local_path(place) if url is None else local_copy(url)


def fetched(url: str) -> Path:
    """The local copy of a file, in the cache's `files` (`local_copy`).

    Raises:
        WorkbenchError: there is no such file.
        MachineError: the store does not answer, or the disk is full.
    """
    folder, _, name = url.rstrip("/").rpartition("/")
    store = Store(folder)
    return _shared("files", url, store.version(name), lambda path: store.get(name, path))


def fetched_folder(store: Store) -> Path | None:
    """The local copy of a folder, in the cache's `folders` (`local_copy`); None if there is no file in it.

    The shards of a corpus are left out: who reads them fetches each (`workbench.corpora.corpus`). So are weights in
    other forms next to a checkpoint's `model.safetensors`.

    Raises:
        WorkbenchError: a name leads out of the folder.
        MachineError: the store does not answer, the folder changes all the time, or the disk is full.
    """
    for _ in range(CHANGES):
        found = store.versions()
        try:
            fetch = partial(_fetch_folder, store, found, _with_folder(found))
            return _shared("folders", store.url, repr(sorted(found.items())), fetch) if found else None
        except _ChangedError:
            continue
    raise MachineError(f"{store} changed {CHANGES} times while it was fetched; start again when it is complete")


def _with_folder(names: Iterable[str]) -> list[str]:
    """The files that are copied with a folder."""
    listed = list(names)
    left_out = SHARDS if CORPUS in listed else OTHER_WEIGHTS if WEIGHTS in listed else ()
    return [name for name in listed if not name.endswith(left_out) or ("/" in name and left_out == SHARDS)]


def _fetch_folder(store: Store, found: dict[str, str], wanted: list[str], folder: Path) -> None:
    """Fetch some files of a version of a folder. What a killed process fetched of it is used.

    Raises:
        _ChangedError: it is another version by now.
    """
    part = folder.with_name(".part")

    def fetch(name: str) -> None:
        if not (part / name).is_file():
            store.get(name, part / name)

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(fetch, wanted))
    except NoSuchFileError as error:
        raise _ChangedError from error
    if store.versions() != found:
        shutil.rmtree(part)
        raise _ChangedError
    part.rename(folder)


class _ChangedError(Exception):
    """A folder of a store changed while it was fetched."""


_in_use: dict[Path, BinaryIO] = {}


def _shared(kind: str, url: str, version: str, fetch: Callable[[Path], None]) -> Path:
    """The copy of a version of what is at a URL, which one process of the node fetches.

    Its lock is held as long as this process lives. Earlier versions that no process holds are removed.
    """
    cache, key = FileCache(default_folder()), hash_of(url, version)
    home = cache.folder / kind / hash_of(url)
    path = home / key / name_of(url)
    if path not in _in_use:
        _in_use[path] = cache.lock(key, fcntl.LOCK_SH)
    if not path.exists():
        with cache.lock(hash_of(url), fcntl.LOCK_EX):
            if not path.exists():
                fetch(path)
                for other in home.iterdir():
                    cache.remove_unused(other.name, other)
    return stands_for(path, url)


def scratch_folder(url: str) -> Path:
    """The local folder of what is written to a URL: HASH/NAME in `scratch_root`.

    Raises:
        WorkbenchError: $WORKBENCH_SCRATCH is a URL.
    """
    return stands_for(scratch_root() / hash_of(url) / name_of(url), url)


def scratch_root() -> Path:
    """$WORKBENCH_SCRATCH, or the folder `scratch` of the cache.

    Raises:
        WorkbenchError: $WORKBENCH_SCRATCH is a URL.
    """
    named = os.environ.get(SCRATCH)
    if named and url_of(named) is not None:
        raise WorkbenchError(f"{SCRATCH} = {named!r}; allowed: a folder of this machine")
    return Path(named) if named else default_folder() / "scratch"


def name_of(url: str) -> str:
    """The last part of a URL, without its query: that has signatures, and no suffix of a file."""
    path = url.partition("?")[0] if url.startswith(("http://", "https://")) else url
    return path.rstrip("/").rsplit("/", 1)[-1] or "root"


def hash_of(url: str, version: str = "") -> str:
    """A short name for a version of what is at a URL."""
    return hashlib.sha256(f"{url.rstrip('/')} {version}".encode()).hexdigest()[:12]
