"""A cache of remote corpus files: each is fetched once through fsspec and stored by its checksum."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import fsspec

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import CHUNK, atomic
from workbench.core.files.urls import url_of


def default_folder() -> Path:
    """The cache folder: $WORKBENCH_CACHE, or ~/.cache/workbench.

    Raises:
        WorkbenchError: $WORKBENCH_CACHE is a URL.
    """
    named = os.environ.get("WORKBENCH_CACHE") or Path.home() / ".cache" / "workbench"
    if url_of(named) is not None:
        raise WorkbenchError(f"WORKBENCH_CACHE = {str(named)!r} is a URL; allowed: a folder of this machine")
    return Path(named)


def fetch_bytes(url: str) -> bytes:
    """The content of a small remote file."""
    try:
        with fsspec.open(url, "rb") as file:
            return bytes(file.read())
    except Exception as error:  # each store's library has its own errors
        raise _unreachable(url, error) from error


def copy_of(url: str, sha256: str, folder: Path) -> Path:
    """The path of the local copy of a remote file."""
    return folder / sha256[:2] / f"{sha256}{Path(url).suffix}"


def fetch(url: str, sha256: str, folder: Path) -> Path:
    """The local copy of a remote file, fetched if it does not exist; several processes may call this at once.

    The name of a copy is its checksum, so a changed remote file never meets an old copy. Copies are never deleted.

    Raises:
        WorkbenchError: the file cannot be fetched, has another checksum, or the disk is full.
    """
    local = copy_of(url, sha256, folder)
    if local.is_file():
        return local
    with atomic(local) as target:
        found = _download(url, target)
        if found != sha256:
            raise WorkbenchError(
                f"{url}: the checksum is {found}, but corpus.json has {sha256}: the file changed after it was "
                "indexed, or the transfer was damaged. Index it again, or restore the file"
            )
    return local


def _download(url: str, target: BinaryIO) -> str:
    hasher = hashlib.sha256()
    try:
        source = fsspec.open(url, "rb").open()
    except Exception as error:  # see `fetch_bytes`
        raise _unreachable(url, error) from error
    with source:
        while True:
            try:
                chunk = source.read(CHUNK)
            except Exception as error:  # see `fetch_bytes`
                raise _unreachable(url, error) from error
            if not chunk:
                return hasher.hexdigest()
            hasher.update(chunk)
            target.write(chunk)


def _unreachable(url: str, error: Exception) -> WorkbenchError:
    return WorkbenchError(
        f"{url} cannot be read: {error or type(error).__name__}. Check the address and the access rights"
    )
