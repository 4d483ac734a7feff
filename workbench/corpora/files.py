"""Files that appear whole or not at all, and their checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workbench.errors import WorkbenchError

CHUNK = 1 << 20


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the name `path` when the block ends, and leaves nothing behind when it fails.

    Raises:
        WorkbenchError: the disk is full or the folder cannot be written.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals to write `path` into messages that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WorkbenchError(
                f"{path}: the disk is full ({error.strerror}); nothing of this file was kept. "
                "Free some space and run the same command again: finished shards are skipped"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
            raise WorkbenchError(f"{path}: cannot write here ({error.strerror}); choose another folder") from error
        raise


def sha256_of(path: Path) -> str:
    """The SHA-256 checksum of a file, in hexadecimal."""
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
