"""Raw inputs at URLs: fetched into the cache before they are read, so that every reader reads them."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store, fetched, local_copy
from workbench.core.files.urls import local_path, url_of


def local_inputs(inputs: Iterable[str]) -> list[str | Path]:
    """The inputs with local copies in place of URLs: of a file, of all files of a folder, or of those of a pattern.

    Copies are in the cache's `files` and `folders`. They have the names of the files, so formats are detected alike.

    Raises:
        WorkbenchError: there is no such file or folder.
        MachineError: the store does not answer, or the disk is full.
    """
    return [here for each in inputs for here in _here(each)]


def _here(place: str) -> list[str | Path]:
    url = url_of(place)
    if url is None:
        return [str(local_path(place)) if place.startswith("file:") else place]
    if glob.has_magic(url) and not url.startswith(("http://", "https://")):
        return _matching(url)
    return [local_copy(url)]


def _matching(pattern: str) -> list[str | Path]:
    """The files whose URLs match a pattern, by name. A `*` matches within a folder."""
    whole = pattern.split("/")
    plain = next(i for i, part in enumerate(whole) if glob.has_magic(part))
    store, parts = Store("/".join(whole[:plain])), whole[plain:]
    names = [name for name in sorted(store.files()) if _matches(name.split("/"), parts)]
    if not names:
        raise WorkbenchError(f"there is no file that matches {pattern}; check the address")
    return [fetched(store.at(name)) for name in names]


def _matches(name: list[str], pattern: list[str]) -> bool:
    return len(name) == len(pattern) and all(map(fnmatchcase, name, pattern))
