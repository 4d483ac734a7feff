"""Files that appear whole or not at all, and their checksums.

Where a path leads.
"""

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
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import psutil

from workbench.core.errors import WorkbenchError, system_error

CHUNK = 1 << 20
DRAFT_SUFFIX = ".part"


@contextlib.contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`, for a writer that wants a name. What stands there when the block ends takes the
    name `path` at once; when the block fails nothing is left behind. Drafts that killed processes left go.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written, or what stands at `path` must stay (`check_replaceable`).
    """
    with explained(path), _made(path.parent):
        check_replaceable(path)
        clear_drafts(path)
        handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=DRAFT_SUFFIX, dir=path.parent)
        os.close(handle)
        try:
            yield Path(name)
            sync(Path(name))
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder to write in; what of it had to be made goes again when the block fails and leaves it empty."""
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
    """A binary file that takes the name `path` when the block ends, and leaves nothing behind when it fails.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written.
    """
    with draft(path) as temporary, temporary.open("wb") as file:
        yield file


def draft_folder(path: Path) -> Path:
    """A new folder next to `path`, to be filled and then renamed to it.

    Raises:
        WorkbenchError: the folder cannot be written.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_drafts(path)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent))
        folder.chmod(0o777 & ~_umask())
        return folder


def is_draft(entry: Path, path: Path) -> bool:
    """Whether a file, or a folder, is a draft of `path`."""
    return entry.name.startswith(f".{path.name}.") and "@" in entry.name


def clear_drafts(path: Path) -> None:
    """Remove the drafts of `path` whose process was killed; those of living ones, and of other machines, stay."""
    owned = re.compile(rf"{re.escape(f'.{path.name}.')}(\d+)@{re.escape(socket.gethostname())}\..*")
    for rest in path.parent.glob(f".{glob.escape(path.name)}.*@*"):
        owner = owned.fullmatch(rest.name)
        if owner is None or psutil.pid_exists(int(owner[1])):
            continue
        if rest.is_dir():
            shutil.rmtree(rest)
        else:
            rest.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    """Of a draft's name: what it is a draft of, and whose."""
    return f".{path.name}.{os.getpid()}@{socket.gethostname()}."


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written.
    """
    with atomic(path) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals to write `path` into messages that say what to do.

    An error that names a file of another folder (an input that is read meanwhile) keeps that name; that of a draft is
    never told.
    """
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str | bytes) else None
        elsewhere = named is not None and not _beside(Path(os.fsdecode(named)), path)
        raise system_error(error, None if elsewhere else path) from error


def _beside(named: Path, path: Path) -> bool:
    """Whether a file is of the folder of `path`, or a draft of it in another."""
    return is_draft(named, path) or os.path.abspath(named.parent) == os.path.abspath(path.parent)


def check_replaceable(path: Path) -> None:
    """Taking a name by renaming removes what had it: of a device, a pipe or a link that is never what was meant.

    Raises:
        WorkbenchError: `path` names no file, or something else than a file stands there.
    """
    if not path.name:
        raise WorkbenchError(f"{str(path)!r} names no file; say the file's name too")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        found = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        raise WorkbenchError(f"{path} is {found}; only a file may be written over: choose another place")


def check_writable(path: Path) -> None:
    """Whether a draft of `path` could be made and take its place, told before there is anything to write.

    Folders that are missing stay so: it is asked of the nearest one that exists.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: as `draft`.
    """
    with explained(path):
        check_replaceable(path)
        folder = next(place for place in Path(os.path.abspath(path)).parents if os.path.lexists(place))
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=DRAFT_SUFFIX, dir=folder)
        os.close(handle)
        os.unlink(name)


def check_file(path: Path) -> None:
    """
    Raises:
        WorkbenchError: what stands at `path` is no file, but a folder, a link to nothing, or a pipe (whoever opens
            one may wait for ever).
    """
    if not path.is_file():
        _refuse(path, "file")


def check_folder(path: Path) -> None:
    """
    Raises:
        WorkbenchError: what stands at `path` is no folder.
    """
    if not path.is_dir():
        _refuse(path, "folder")


def _refuse(path: Path, meant: str) -> None:
    if path.exists() or path.is_symlink():
        stands = "a folder" if path.is_dir() else "a file" if path.is_file() else "a pipe or device"
        found = stands if path.exists() else "a link to nothing"
        raise WorkbenchError(
            f"{path} is {found}, and a {meant} is meant to be there; move it away, or choose another place"
        )


def is_at(file: IO[Any], path: Path) -> bool:
    """Whether an open file is the one that stands at `path` now."""
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def real_path(path: str | Path) -> Path:
    """The path without links and `..`. A link that leads to itself stays: whoever opens it is told so by the system.

    (`Path.resolve` raises a RuntimeError for that one.)
    """
    return Path(os.path.realpath(path))
