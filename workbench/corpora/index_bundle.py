"""The indexes of all shards of a corpus in one file, so that a remote corpus is opened with one request for them.

    magic b"WBINDEX1" | number of indexes, int64 | start and end of each, int64 [indexes, 2] | the index files

All integers are little-endian; each index begins at a multiple of 8 bytes, in the order of the shards in corpus.json.
"""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic, sha256_of

BUNDLE_NAME = "index.bundle"
_MAGIC = b"WBINDEX1"
_ALIGNMENT = 8


def write_bundle(path: Path, indexes: Sequence[Path]) -> dict[str, Any]:
    """Write the bundle of index files; returns its entry in corpus.json: `name`, `bytes`, `sha256`."""
    sizes = np.array([index.stat().st_size for index in indexes], np.int64)
    head = len(_MAGIC) + 8 + 16 * len(indexes)
    padded = -(-sizes // _ALIGNMENT) * _ALIGNMENT
    starts = head + np.cumsum(padded) - padded
    table = np.stack([starts, starts + sizes], 1).astype("<i8")
    with atomic(path) as file:
        file.write(_MAGIC + len(indexes).to_bytes(8, "little") + table.tobytes())
        for index, size, room in zip(indexes, sizes.tolist(), padded.tolist(), strict=True):
            with open(index, "rb") as source:
                shutil.copyfileobj(source, file)
            file.write(bytes(room - size))
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


class IndexBundle:
    """A bundle, mapped into memory.

    Args:
        path: the file.
        count: the number of indexes that it must hold.

    Raises:
        WorkbenchError: it is damaged.
    """

    held: object = None
    """The lock on a cached copy."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        with open(path, "rb") as file:
            self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        head = len(_MAGIC) + 8
        if bytes(self._view[:head]) != _MAGIC + count.to_bytes(8, "little") or len(self._view) < head + 16 * count:
            raise WorkbenchError(f"{path} is not a bundle of {count} indexes; write the corpus again")
        self._places = np.frombuffer(self._view, "<i8", 2 * count, head).reshape(count, 2)

    def index(self, number: int) -> memoryview:
        """The bytes of a shard's index."""
        start, end = self._places[number].tolist()
        return self._view[max(0, start) : max(0, end)]
