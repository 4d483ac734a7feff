"""Verified checksums of files, and folders of arrays that are sealed by a JSON file with their checksums.

Each version of a file is hashed once per machine. A file whose checksum was right is remembered by path, size, inode,
and times of change, in memory and in `verified/` of the cache folder. So loader workers, ranks and restarts do not hash
it again. The inode's change time counts too, which no program can reset: a file that was written to is hashed again
even if its size and modification time are unchanged. A file that changed less than two seconds before it is hashed is
not remembered, as a second change might have the same time. Bytes that change without a write through the file system
(a failing disk) remain undetected; `workbench verify` always reads everything.

The JSON file of a sealed folder says what the folder holds, and has the checksum of every file:

    {"format": 2, ..., "files": {"triples.npy": "<SHA-256>", ...}, "digest": "<SHA-256 of all the other keys>"}

Opening a sealed folder costs a few system calls for each file. The first time on a machine it costs as much as reading
the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import default_folder, version_of
from workbench.core.files.drafts import real_path, sha256_of
from workbench.core.files.text_files import parse_json

logger = logging.getLogger(__name__)


SETTLED = 2_000_000_000
"""Nanoseconds after which a further change of a file has another time."""

_remembered: dict[Path, set[str]] = {}
_read: dict[Path, int] = {}


def matches(path: Path, checksum: str, digest: Callable[[Path], str] = sha256_of) -> bool:
    """Whether `digest(path)` is `checksum`; the digest is computed once for each version of a file.

    Processes that check the same file at once take turns, so that the first result serves all of them.

    Raises:
        OSError: the file is missing or cannot be read.
    """
    record = _record(path)
    if _known(record, checksum, path):
        return True
    with _turn(path):
        if _known(record, checksum, path):
            return True
        started = time.time_ns()
        before = version_of(path)
        if digest(path) != checksum:
            return False
        if started - path.stat().st_ctime_ns > SETTLED and version_of(path) == before:
            _remember(record, _line(checksum, before, path))
        return True


def _line(checksum: str, version: str, path: Path) -> str:
    return f"{checksum} {version} {json.dumps(path.name)}"


def _record(path: Path) -> Path:
    """The record file for the files in `path`'s folder."""
    folder = hashlib.sha256(os.fsencode(real_path(path.parent))).hexdigest()
    return default_folder() / "verified" / folder[:32]


def _known(record: Path, checksum: str, path: Path) -> bool:
    line = _line(checksum, version_of(path), path)
    if line not in _remembered.get(record, ()):
        with contextlib.suppress(OSError):
            _read_new_lines(record)
    return line in _remembered.get(record, ())


def _read_new_lines(record: Path) -> None:
    """Read the lines that other processes have written since the record was last read."""
    with open(record, "rb") as file:
        file.seek(_read.get(record, 0))
        whole, end, _ = file.read().rpartition(b"\n")
    _read[record] = _read.get(record, 0) + len(whole) + len(end)
    _remembered.setdefault(record, set()).update(whole.decode("utf-8", "replace").splitlines())


def _remember(record: Path, line: str) -> None:
    _remembered.setdefault(record, set()).add(line)
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        with open(record, "a", encoding="utf-8") as file:  # one short write each: lines of several processes stay whole
            file.write(f"{line}\n")
    except OSError as error:
        logger.debug("%s will be hashed again by other processes: %s", line, error)


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """A lock on the file for one process of this machine at a time; without locks in the file system all run at
    once."""
    with open(path, "rb") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


FORMAT = 2


def seal(folder: Path, name: str, about: Mapping[str, Any]) -> str:
    """Write the file `name` that seals the content of the folder; returns its digest."""
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.name != name}
    meta = {"format": FORMAT, **about, "files": files}
    digest = _digest(meta)
    (folder / name).write_text(json.dumps({**meta, "digest": digest}, indent=2), encoding="utf-8")
    return digest


def open_sealed(folder: Path, name: str, *, missing: str, again: str) -> dict[str, Any]:
    """The content of the seal, after checking that every file is unchanged.

    Args:
        missing: the message if there is no file `name`.
        again: advice for a damaged folder, for the message.

    Raises:
        WorkbenchError: there is no such file, it has another format, or a file is missing, changed or damaged.
    """
    place = folder / name
    try:
        meta = _read_seal(place)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkbenchError(missing) from error
    except ValueError as error:
        raise WorkbenchError(f"{place} {error}; {again}") from error
    for file, checksum in meta["files"].items():
        _check(folder / file, checksum, again)
    return {**meta, "digest": _digest(meta)}


def damage(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """(file, problem) for every file that differs from the seal. Every byte is read."""
    try:
        meta = _read_seal(folder / name)
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


def _read_seal(place: Path) -> dict[str, Any]:
    """The content of the seal without its digest, which is verified.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: the seal is damaged, changed or of another format.
    """
    try:
        meta = parse_json(place.read_bytes())
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
