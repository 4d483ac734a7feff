"""Folders of object stores, read and written through fsspec.

A file of an object store appears whole or not at all, which is what a commit rests on. Other protocols (http, ftp,
sftp, hdfs) show half-written files or cannot be written, so nothing is written there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import default_folder
from workbench.core.files.drafts import draft
from workbench.core.files.transfers import download, opened, repeated
from workbench.core.files.urls import WRITABLE, WRITTEN, url_of
from workbench.core.terminal import Terminal

SCRATCH = "WORKBENCH_SCRATCH"
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
        store.put_bytes(b"", probe)
        store.remove([probe])
        return store

    def __str__(self) -> str:
        return self.url

    def at(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.url}/{name}" if name else self.url

    def files(self) -> dict[str, int]:
        """The sizes of all files below the folder, by name; empty if there is no such folder."""
        files, root = self._opened("")
        files.invalidate_cache()
        try:
            found = self._said("", lambda: files.find(root, detail=True))
        except NoSuchFileError:
            return {}
        prefix = root.strip("/") + "/"
        named = {path.lstrip("/"): info["size"] or 0 for path, info in found.items() if info["type"] == "file"}
        return {path.removeprefix(prefix): size for path, size in named.items() if path.startswith(prefix)}

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
        stated = [facts.get(key) for key in ("size", "ETag", "etag", "md5Hash", "mtime", "LastModified", "created")]
        return repr([str(each) for each in stated if each is not None])

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
                raise NoSuchFileError(f"there is no {self.at(name)} ({error}); check the address") from error

        return repeated(self.at(name), attempt, writes=writes)


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
        yield (path := Path(scratch, name))
        if path.is_file():
            store.put(path, name)
            Terminal(stderr=True).print(f"uploaded {escape(url)}", highlight=False)


def fetched(url: str) -> Path:
    """The local copy of a file, in the cache's `files`. Another version of it has another folder.

    Raises:
        WorkbenchError: there is no such file.
        MachineError: the store does not answer, or the disk is full.
    """
    folder, _, name = url.rstrip("/").rpartition("/")
    store = Store(folder)
    path = default_folder() / "files" / hash_of(url, store.version(name)) / name
    if not path.is_file():
        store.get(name, path)
    return path


def fetched_folder(store: Store) -> Path | None:
    """The local copy of a folder, in the cache's `folders`; None if there is no file in it. Files of other sizes than
    before are fetched again, and files that are gone are removed.

    Raises:
        WorkbenchError: a name leads out of the folder.
        MachineError: the store does not answer, or the disk is full.
    """
    found = store.files()
    folder = default_folder() / "folders" / hash_of(store.url) / (store.url.rsplit("/", 1)[-1] or "root")
    for name, size in found.items():
        if any(part in ("", "..") for part in name.split("/")):
            raise WorkbenchError(f"{store.at(name)} leads out of its folder; rename the file")
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            store.get(name, path)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in found:
            path.unlink()
    return folder if found else None


def scratch_folder(url: str) -> Path:
    """The local folder of what is written to a URL: $WORKBENCH_SCRATCH/HASH/NAME, or the same in the cache's `scratch`.

    Raises:
        WorkbenchError: $WORKBENCH_SCRATCH is a URL.
    """
    named = os.environ.get(SCRATCH)
    if named and url_of(named) is not None:
        raise WorkbenchError(f"{SCRATCH} = {named!r}; allowed: a folder of this machine")
    root = Path(named) if named else default_folder() / "scratch"
    return root / hash_of(url) / (url.rstrip("/").rsplit("/", 1)[-1] or "root")


def hash_of(url: str, version: str = "") -> str:
    """A short name for a version of what is at a URL."""
    return hashlib.sha256(f"{url.rstrip('/')} {version}".encode()).hexdigest()[:12]
