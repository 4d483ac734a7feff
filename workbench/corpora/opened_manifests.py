"""The manifests that this process has opened: each version of a corpus.json is parsed once.

The corpus.json of 80,000 shards has 42 MB, takes more than a second to parse and 150 MB of memory. A run opens each of
its corpora several times (checks, tasks, held-out passes), and its loader workers inherit what was parsed. The file of
a remote corpus is fetched once per node.
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import FileCache, version_at, version_of
from workbench.core.files.checksums import SETTLED
from workbench.core.files.transfers import DamagedTransferError
from workbench.corpora.manifest import Manifest, check_below, parse_manifest

KEPT = 16
_opened: OrderedDict[str, tuple[str, Manifest]] = OrderedDict()  # by place: version, manifest


def manifest_at(path: Path) -> Manifest:
    """The manifest in a local corpus.json.

    Raises:
        OSError: there is no such file.
        WorkbenchError: see `parse_manifest`.
    """
    place, version = str(path), version_of(path)
    if (known := _known(place, version)) is not None:
        return known
    settled = time.time_ns() - path.stat().st_ctime_ns > SETTLED
    manifest = parse_manifest(path.read_bytes(), place)
    return _remembered(place, version, manifest) if settled else manifest


def remote_manifest(url: str, folder: Path) -> Manifest:
    """The manifest in the corpus.json at a URL; `folder` is the cache.

    Raises:
        MachineError, WorkbenchError: see `FileCache.hold`, `parse_manifest` and `check_below`.
    """
    parsed: list[Manifest] = []

    def check(data: bytes) -> None:
        try:
            parsed.append(parse_manifest(data, url))
        except WorkbenchError as error:
            raise DamagedTransferError(str(error), str(error).removeprefix(f"{url} ")) from error

    file = version_at(url, check)
    if (known := _known(url, file.sha256)) is not None:
        return known
    cache = FileCache(folder)
    held = cache.hold(file)
    if not held.as_fetched:
        cache.drop(file)
        held = cache.hold(file)
    manifest = parsed[-1] if parsed else parse_manifest(held.path.read_bytes(), url)
    check_below(manifest, url)
    return _remembered(url, file.sha256, manifest)


def _known(place: str, version: str) -> Manifest | None:
    known = _opened.get(place)
    return _copy(known[1]) if known is not None and known[0] == version else None


def _remembered(place: str, version: str, manifest: Manifest) -> Manifest:
    _opened[place] = version, manifest
    _opened.move_to_end(place)
    if len(_opened) > KEPT:
        _opened.popitem(last=False)
    return _copy(manifest)


def _copy(manifest: Manifest) -> Manifest:
    """A manifest whose tables a caller may change; the entries of the shards are shared."""
    tables: dict[str, Any] = {name: dict(getattr(manifest, name)) for name in TABLES}
    return dataclasses.replace(manifest, shards=list(manifest.shards), **tables)


TABLES = ("fields", "dropped", "provenance", "about", "bundle")


def forget_manifests() -> None:
    """Let go of all parsed manifests: the next opening reads its corpus.json again."""
    _opened.clear()
