"""HDF5 files of region features."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from workbench.core.errors import WorkbenchError

H5_FAILURES = (OSError, LookupError, ValueError, RuntimeError, TypeError)


def opened(path: str) -> Any:
    """The file, opened once in each process: HDF5's handles do not survive a fork."""
    return _opened(path, os.getpid())


@lru_cache(maxsize=64)
def _opened(path: str, process: int) -> Any:
    return open_h5(path)


def own(file: Any, name: str) -> Any:
    """An object of a file by name, if its content is in the file itself.

    Raises:
        WorkbenchError: it is a link to another file, or its numbers are those of another file. Any file of this machine
            could be named there.
    """
    found = file[name]
    elsewhere = getattr(found, "external", None) or getattr(found, "is_virtual", False)
    if elsewhere or found.file.filename != file.file.filename:
        raise WorkbenchError(
            f"{file.file.filename}: {name!r} is stored in another file, which is not opened; copy it into this one"
        )
    return found


def open_h5(path: str) -> Any:
    """The file, opened for reading.

    Raises:
        WorkbenchError: no h5py, or no HDF5 file.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            "HDF5 features need the package 'h5py': pip install 'pretraining-workbench[features]'"
        ) from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise WorkbenchError(f"{path} is not a readable HDF5 file: {error}") from error
