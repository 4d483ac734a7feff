"""Folders of arrays with a JSON file that seals them: what they are, and the checksum of every file.

    {"format": 2, ..., "files": {"triples.npy": "<SHA-256>", ...}, "digest": "<SHA-256 of all the other keys>"}

A file is hashed once for each version of it (`workbench.files.checksums`): opening a sealed folder costs a few system
calls for each file, and the first time on a machine as much as reading it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.files.checksums import matches
from workbench.files.drafts import sha256_of

FORMAT = 2


def seal(folder: Path, name: str, about: Mapping[str, Any]) -> str:
    """Write the file `name` that seals what is in the folder; returns its digest."""
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.name != name}
    meta = {"format": FORMAT, **about, "files": files}
    digest = _digest(meta)
    (folder / name).write_text(json.dumps({**meta, "digest": digest}, indent=2), encoding="utf-8")
    return digest


def open_sealed(folder: Path, name: str, *, missing: str, again: str) -> dict[str, Any]:
    """What `seal` wrote, when every file is as it was then.

    Args:
        missing: the message where there is no file `name`.
        again: what to do about a folder that is damaged, for the message.

    Raises:
        WorkbenchError: there is no such file, it is of another format, or a file is missing, changed or damaged.
    """
    place = folder / name
    try:
        meta = _read(place)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkbenchError(missing) from error
    except ValueError as error:
        raise WorkbenchError(f"{place} {error}; {again}") from error
    for file, checksum in meta["files"].items():
        _check(folder / file, checksum, again)
    return {**meta, "digest": _digest(meta)}


def damage(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """(file, what is wrong with it) of everything that is not as `seal` left it; every byte is read."""
    try:
        meta = _read(folder / name)
    except OSError as error:
        yield name, f"it cannot be read: {error.strerror}"
        return
    except ValueError as error:
        yield name, f"it {error}"
        return
    for file, checksum in meta["files"].items():
        try:
            if sha256_of(folder / file) != checksum:
                yield file, f"the checksum differs from the one in {name}: it was changed or damaged"
        except OSError as error:
            yield file, f"it cannot be read: {error.strerror}"


def _read(place: Path) -> dict[str, Any]:
    """What `seal` wrote, without its digest, which is right.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: what is wrong with it.
    """
    try:
        meta = json.loads(place.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is damaged ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        found = meta.get("format") if isinstance(meta, dict) else type(meta).__name__
        raise ValueError(f"is of format {found!r}, this version reads format {FORMAT}")
    if meta.pop("digest", None) != _digest(meta):
        raise ValueError("was changed or damaged after it was written")
    return meta


def _check(path: Path, checksum: str, again: str) -> None:
    try:
        intact = matches(path, checksum)
    except FileNotFoundError as error:
        raise WorkbenchError(f"{path} is missing; {again}") from error
    if not intact:
        raise WorkbenchError(f"{path} was changed or damaged after it was written (its checksum differs); {again}")


def _digest(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
