"""The local copies of a remote corpus's files: fetched on use, or before it in the background.

The first records are read by themselves. So whoever looks at a few of them does not wait for a whole shard.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from workbench.core.files.cache import FileCache, HeldCopy, RemoteFile
from workbench.core.files.checksums import matches
from workbench.core.files.downloads import Download, pool
from workbench.core.files.transfers import read_range

logger = logging.getLogger(__name__)
RANGES = 8
"""Byte ranges that are read of the files of a corpus at most; each takes a request of its own."""
PATIENCE = 1.0
"""Seconds after which a byte range is given up, and the file waited for."""


class RemoteCopies:
    """The copies of the remote files of a corpus that this process uses, or will use soon.

    Args:
        folder: the folder of the cache.
    """

    def __init__(self, folder: Path) -> None:
        self._cache = FileCache(folder)
        self._downloads: dict[str, Download] = {}  # by checksum
        self._needed: frozenset[str] = frozenset()
        self._ranges_left = RANGES

    def byte_range(self, file: RemoteFile, start: int, end: int) -> bytes | None:
        """The bytes from `start` to `end` of a file, not compared with a checksum; None if there is a copy of the file,
        or it is to be fetched: after `RANGES` byte ranges, or as one could not be read at once."""
        if not self._ranges_left or self._cache.path(file).is_file():
            return None
        self._ranges_left -= 1
        try:
            return read_range(file.url, start, end, PATIENCE)
        except Exception as error:  # each store's library has its own; the file is fetched with repeated tries
            self.refuse_ranges(f"{type(error).__name__}: {error}")
            return None

    def refuse_ranges(self, why: str) -> None:
        """Read no more byte ranges, but whole files."""
        if self._ranges_left:
            logger.debug("whole files are read instead of byte ranges: %s", why)
        self._ranges_left = 0

    def copy(self, file: RemoteFile) -> HeldCopy:
        """The copy of a file. A copy that was changed or damaged is fetched again.

        Raises:
            MachineError, WorkbenchError: see `FileCache.hold`.
        """
        download = self._downloads.get(file.sha256)
        try:
            held = self._cache.hold(file) if download is None else pool().copy(download)
        except Exception:  # the next use tries again, also files that met the same trouble, or are about to
            for sha256, other in list(self._downloads.items()):
                if other.running or other.error or other is download:
                    del self._downloads[sha256]
            raise
        if not held.as_fetched and not matches(held.path, file.sha256):
            said = (held.path, file.url)
            logger.warning("the cached copy %s of %s was changed or damaged; it is fetched again", *said)
            self._downloads.pop(file.sha256, None)
            self._cache.drop(file)
            held = self._cache.hold(file)
        return held

    def expect(self, now: Iterable[RemoteFile], soon: Iterable[RemoteFile]) -> None:
        """Fetch files in the background: those that are used now, then those that are used soon. Earlier ones that are
        neither are let go."""
        files = {file.sha256: file for file in (*now, *soon)}
        self._needed = frozenset(file.sha256 for file in now)
        self._forget(files.keys())
        first = [self._downloads[sha256] for sha256 in self._needed & self._downloads.keys()]
        for sha256, file in files.items():
            if sha256 not in self._downloads:
                download = Download(self._cache, file, () if sha256 in self._needed else first)
                if sha256 in self._needed:
                    first.append(download)
                self._downloads[sha256] = download
                pool().add(download)

    def release(self) -> None:
        """Let go of the copies that are not used now."""
        self._forget(self._needed)

    def _forget(self, but: Collection[str]) -> None:
        for sha256 in [known for known in self._downloads if known not in but]:
            pool().cancel(self._downloads.pop(sha256))

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_downloads": {}, "_needed": frozenset()}
