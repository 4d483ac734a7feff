"""The items of a shard, and the file in the cache folder that keeps them.

Cutting the texts of a shard into windows takes seconds where it has millions. A kept table is mapped into memory, so
that a resumed run, the other ranks of a node and its loader workers don't cut them again:

    SHA-256 of the rest | number of records, int64 | items before each record, int64 [records + 1] | ends [items]

Ends count characters; they are int32, or int64 where a text is that long. An item begins where the one before it ends,
or with its record.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic

logger = logging.getLogger(__name__)
KEPT = 4096
"""The windows of a shard from which its table is kept in a file; fewer are cut in milliseconds."""
_HASH, _HEAD = 32, 40


class ItemTable:
    """The items of a shard.

    Args:
        starts: [records + 1] items before each record, int64.
        ends: [items] end of each item in its record; None: an item is one element of a list.
    """

    def __init__(self, starts: np.ndarray, ends: np.ndarray | None = None) -> None:
        self.items = int(starts[-1])
        self.runs = np.diff(starts)
        # reading one integer of a memoryview takes a third of the time of a numpy scalar
        self._starts, self._ends = starts.data, None if ends is None else ends.data

    def stretch(self, item: int) -> tuple[int, int, int]:
        """The record of an item, and the item's start and end in it."""
        record = bisect_right(self._starts, item) - 1
        before = item - self._starts[record]
        if self._ends is None:
            return record, before, before + 1
        return record, self._ends[item - 1] if before else 0, self._ends[item]


def kept_table(path: Path, make: Callable[[], tuple[np.ndarray, np.ndarray]]) -> ItemTable:
    """The table at a path, or the one that `make` returns as starts and ends; a large one is then kept there."""
    known = _read(path)
    if known is not None:
        return known
    starts, ends = make()
    ends = ends.astype(np.int32) if not len(ends) or ends.max() < 2**31 else ends
    if len(ends) >= KEPT:
        content = (len(starts) - 1).to_bytes(8, "little") + starts.tobytes() + ends.tobytes()
        try:
            with atomic(path) as file:
                file.write(hashlib.sha256(content).digest() + content)
        except WorkbenchError as error:
            logger.debug("the windows of a shard are cut again next time: %s", error)
    return ItemTable(starts, ends)


def _read(path: Path) -> ItemTable | None:
    """The table at a path; None if the file is missing or damaged."""
    try:
        with path.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # a file without content cannot be mapped
        return None
    if hashlib.sha256(view[_HASH:]).digest() != view[:_HASH]:
        return None
    records = int.from_bytes(view[_HASH:_HEAD], "little")
    starts = np.frombuffer(view, np.int64, records + 1, _HEAD)
    first = _HEAD + starts.nbytes
    width = (len(view) - first) // int(starts[-1])
    return ItemTable(starts, np.frombuffer(view, np.dtype(f"<i{width}"), offset=first))
