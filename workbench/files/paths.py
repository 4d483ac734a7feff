"""Where a path leads."""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: str | Path) -> Path:
    """The path without links and `..`. A link that leads to itself stays: whoever opens it is told so by the system.

    (`Path.resolve` raises a RuntimeError for that one.)
    """
    return Path(os.path.realpath(path))
