"""Files that are written completely or not at all; checks of paths; checksums of files."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import psutil

from workbench.core.errors import WorkbenchError, system_error
from workbench.core.files.urls import check_is_path

CHUNK = 1 << 20
DRAFT_SUFFIX = ".part"
FORGOTTEN = 24 * 3600
"""Seconds after which a draft of another machine that has not changed counts as left over."""
_OWNER = re.compile(r"\..*\.(\d+)@(.+?)\.[^.]*(?:\.part)?")


@contextlib.contextmanager
def draft(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A temporary path next to `path`. When the block ends, its file is renamed to `path`; when the block fails, it is
    deleted. Drafts of killed processes are removed.

    Args:
        durable: the content is on the disk before the file is renamed. A cache can do without.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written, or the file at `path` must stay (`check_replaceable`).
    """
    with explained(path), _created(path.parent):
        check_replaceable(path)
        clear_drafts(path)
        temporary = _new_file(path.parent, path)
        try:
            yield temporary
            if durable:
                sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _created(folder: Path) -> Iterator[None]:
    """A folder to write in. Folders that had to be created are removed when the block fails and leaves them empty."""
    check_is_path(folder)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in missing:
            with contextlib.suppress(OSError):
                place.rmdir()
        raise


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A binary file that is renamed to `path` when the block ends, and deleted when the block fails.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written.
    """
    with draft(path) as temporary, temporary.open("wb") as file:
        yield file


def draft_folder(path: Path) -> Path:
    """A new folder next to `path`, to be filled and then renamed to `path`.

    Raises:
        WorkbenchError: the folder cannot be written.
    """
    check_is_path(path)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_drafts(path)
        folder = path.parent / f"{_prefix(path)}{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        return folder


def is_draft(entry: Path, path: Path) -> bool:
    """Whether a file or folder is a draft of `path`."""
    return entry.name.startswith(f".{path.name}.") and "@" in entry.name


def clear_drafts(path: Path) -> None:
    """Remove the drafts of `path` whose process was killed. Drafts of living processes and of other machines stay."""
    owned = re.compile(rf"{re.escape(f'.{path.name}.')}(\d+)@{re.escape(socket.gethostname())}\..*")
    for rest in path.parent.glob(f".{glob.escape(path.name)}.*@*"):
        owner = owned.fullmatch(rest.name)
        if owner is None or psutil.pid_exists(int(owner[1])):
            continue
        if rest.is_dir():
            shutil.rmtree(rest)
        else:
            rest.unlink(missing_ok=True)


def may_be_written(entry: Path) -> bool:
    """Whether the process that writes a draft may still live: on this machine it does; on another one the draft has
    changed within `FORGOTTEN` seconds."""
    owner = _OWNER.fullmatch(entry.name)
    if owner is None:
        return False
    if owner[2] == socket.gethostname():
        return psutil.pid_exists(int(owner[1]))
    try:
        return time.time() - entry.stat().st_mtime < FORGOTTEN
    except FileNotFoundError:
        return False


def _prefix(path: Path) -> str:
    """The prefix of a draft's name: the target and the owner."""
    return f".{path.name}.{os.getpid()}@{socket.gethostname()}."


def _new_file(folder: Path, path: Path) -> Path:
    """An empty draft of `path` in a folder. The system applies the umask; asking for it would set it for a moment, also
    for files of other threads."""
    name = folder / f"{_prefix(path)}{uuid.uuid4().hex[:8]}{DRAFT_SUFFIX}"
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return name


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, completely or not at all.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written.
    """
    with atomic(path) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """A block in which errors of the operating system on writing `path` become messages that say what to do.

    An error that names a file of another folder (an input that is read meanwhile) keeps that name. The name of a draft
    is never shown.
    """
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str | bytes) else None
        elsewhere = named is not None and not _is_next_to(Path(os.fsdecode(named)), path)
        raise system_error(error, None if elsewhere else path) from error


def _is_next_to(named: Path, path: Path) -> bool:
    """Whether a file is in the folder of `path`, or a draft of it in another folder."""
    return is_draft(named, path) or os.path.abspath(named.parent) == os.path.abspath(path.parent)


def check_replaceable(path: Path) -> None:
    """Refuse a path whose file must not be replaced by a renamed file: a device, a pipe or a link.

    Raises:
        WorkbenchError: `path` has no file name, or is not a regular file.
    """
    if not path.name:
        raise WorkbenchError(f"{str(path)!r} has no file name; add one")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        found = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        raise WorkbenchError(f"{path} is {found}; only a file may be overwritten: choose another place")


def check_writable(path: Path) -> None:
    """Check whether a draft of `path` could be written and renamed, before there is anything to write.

    Missing folders are not created: the nearest existing folder is checked.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: as `draft`.
    """
    check_is_path(path)
    with explained(path):
        check_replaceable(path)
        folder = next(place for place in Path(os.path.abspath(path)).parents if os.path.lexists(place))
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        _new_file(folder, path).unlink()


def check_file(path: Path) -> None:
    """Check that `path` is a file.

    Raises:
        WorkbenchError: it is a folder, a link to nothing, or a pipe (opening one may block forever).
    """
    if not path.is_file():
        _refuse(path, "file")


def check_folder(path: Path) -> None:
    """Check that `path` is a folder.

    Raises:
        WorkbenchError: it is not a folder.
    """
    if not path.is_dir():
        _refuse(path, "folder")


def _refuse(path: Path, meant: str) -> None:
    if path.exists() or path.is_symlink():
        kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "a pipe or device"
        found = kind if path.exists() else "a link to nothing"
        raise WorkbenchError(f"{path} is {found}, but must be a {meant}; move it, or choose another place")


def is_at(file: IO[Any], path: Path) -> bool:
    """Whether an open file is the one at `path` now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def real_path(path: str | Path) -> Path:
    """The path without links and `..`. A link to itself stays: opening it raises an error of the system.

    (`Path.resolve` raises a RuntimeError for such a link.)
    """
    return Path(os.path.realpath(path))
