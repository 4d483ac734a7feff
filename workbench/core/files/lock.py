"""A lock for one writer per folder. It ends with its process, however the process ends."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from workbench.core.errors import WorkbenchError, system_error
from workbench.core.files.drafts import check_file, is_at, real_path
from workbench.core.files.urls import check_is_path
from workbench.core.local_copies import with_urls

logger = logging.getLogger(__name__)
LOCK = ".lock"
_held: dict[Path, bytes] = {}
"""The locks of this process, with the record in their file. It must not open the file again, as closing it would end
the lock."""


def record_of(folder: Path) -> bytes:
    """What this process has written into the file of its lock: its id, its host, a random number; b"" where the disk
    was full."""
    return _held[real_path(folder) / LOCK]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process. A missing folder is created, and removed again if it is empty in the end.

    The lock is a POSIX lock: it belongs to the process and not to its children. So a killed process holds no lock,
    although its loader workers may live a moment longer. The lock works between the machines of a shared file system
    with locks; without locks only a warning is logged.

    Raises:
        WorkbenchError: another process, or this one, holds the lock (the message says which), or the folder cannot be
            written.
    """
    check_is_path(folder)
    created = not folder.exists()
    if folder.exists() and not folder.is_dir():
        raise WorkbenchError(f"{folder} is a file; choose another folder")
    place = real_path(folder) / LOCK
    if place in _held:  # a POSIX lock does not exclude its own process
        raise WorkbenchError(f"{folder} is in use by this process itself; choose another folder")
    _held[place] = b""
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file, _held[place] = _acquire(folder)
        except OSError as error:
            raise system_error(error, folder) from error
        try:
            yield
        finally:
            with suppress(OSError):  # on a failing disk the lock ends with the process
                place.unlink(missing_ok=True)
                if created and folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
            file.close()
    finally:
        _held.pop(place, None)


def _acquire(folder: Path) -> tuple[TextIO, bytes]:
    place = folder / LOCK
    check_file(place)
    while True:
        file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o644), "r+")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                holder = _holder(file)
                file.close()
                raise WorkbenchError(
                    f"{folder} is in use{holder}. Wait until it ends, stop it, or choose another folder"
                ) from None
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP):
                file.close()
                raise
            logger.warning("the file system of %s has no locks; make sure that no other process writes there", folder)
        if is_at(file, place):
            break
        file.close()  # the previous holder removed the file in the meantime
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%F %T"),
        "command": with_urls(sys.argv),
    }
    record = json.dumps({**about, "nonce": uuid.uuid4().hex}).encode()
    file.truncate()
    with suppress(OSError):  # on a full disk the lock holds without the record of its owner
        os.write(file.fileno(), record)  # unbuffered: closing cannot fail
        return file, record
    return file, b""


def _holder(file: TextIO) -> str:
    try:
        about = json.load(file)
        return (
            f": process {about['pid']} on {about['host']} works in it since {about['since']} "
            f"({' '.join(about['command'])})"
        )
    except (ValueError, KeyError, TypeError):
        return " by another process"
