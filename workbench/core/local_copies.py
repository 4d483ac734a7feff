"""The URLs of local files and folders: copies of what was fetched, and drafts of what is written to a store.

People named the URL, so messages and records name it too. Who makes a local path of a URL says so (`stands_for`). The
command line replaces such paths in all that it prints, and hides the secrets of URLs (`with_urls`); so does a record.
Who opens the place of a path again asks for it (`place_of`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench.core.url_secrets import without_secrets

_urls: dict[str, str] = {}


def stands_for(path: Path, url: str) -> Path:
    """Note that a local path stands for a URL; returns the path."""
    _urls[os.path.abspath(path)] = _urls[str(path)] = url.rstrip("/")
    return path


def place_of(path: str | os.PathLike[str]) -> str:
    """The URL that a path, or a folder above it, stands for, with the rest of the path; the path itself if none does.

    >>> place_of(stands_for(Path("/cache/12/codex"), "s3://bucket/codex") / "graph")
    's3://bucket/codex/graph'
    """
    text = os.fspath(path)
    if not _urls:
        return text
    place = Path(text)
    known = next((above for above in (place, *place.parents) if str(above) in _urls), None)
    if known is None:
        return text
    return "/".join([_urls[str(known)], *place.relative_to(known).parts])


def with_urls(value: Any) -> Any:
    """A text with URLs in place of all paths that stand for one, and without their secrets (`without_secrets`); also
    the texts in lists and mappings."""
    if isinstance(value, dict):
        return {with_urls(name): with_urls(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_urls(each) for each in value)
    if isinstance(value, str):
        for path in sorted(_urls, key=len, reverse=True):
            value = value.replace(path, _urls[path])
        return without_secrets(value)
    return value
