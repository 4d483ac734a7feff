"""Triples as they come -> rows of numbers by head, for more of them than the memory holds.

Ids become numbers in the order of their first appearance (`kg.graph.numbering`); the rows lie in a temporary file, are
split there by ranges of heads, and sorted range by range.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kg.graph.numbering import Numbering
from kg.graph.spill import BLOCK, Spill

NUMBERED_AT_ONCE = 1 << 19
"""Ids that are numbered at once."""
SORTED_AT_ONCE = 1 << 21
"""Triples that are sorted at once; more where a single head has more."""


class TripleBlock(NamedTuple):
    """Distinct triples [n, 3] of the heads in [begin, end), sorted by head and otherwise in the order they came."""

    begin: int
    end: int
    rows: np.ndarray


class TripleLinks:
    """Triples (head id, relation id, tail id). Relations are few: theirs is a dict."""

    def __init__(self, folder: Path | None = None) -> None:
        self.entities = Numbering(folder)
        self.relations: dict[str, int] = {}
        self._folder = folder
        self._rows = Spill(np.int32, 3, folder)
        self._ids: list[str] = []
        self._heads, self._relations = array("q"), array("i")  # places in _ids; a tail stands behind its head
        self._asked: list[tuple[int, Callable[[int], None]]] = []

    def __len__(self) -> int:
        """Number of triples, repeated ones included."""
        return len(self._rows) + len(self._heads)

    def add(self, head: str, relation: str, tail: str) -> None:
        """Add a triple."""
        self._heads.append(len(self._ids))
        self._relations.append(self.relations.setdefault(relation, len(self.relations)))
        self._ids += (head, tail)
        if len(self._ids) >= NUMBERED_AT_ONCE:
            self.flush()

    def ask(self, entity: str, then: Callable[[int], None]) -> None:
        """Call `then` with the entity's number (it gets one), at the latest in `flush`."""
        self._asked.append((len(self._ids), then))
        self._ids.append(entity)
        if len(self._ids) >= NUMBERED_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Number the ids that came since the last time."""
        if not self._ids:
            return
        numbers = self.entities.numbers(self._ids)
        heads = np.frombuffer(self._heads, np.int64)
        rows = [numbers[heads], np.frombuffer(self._relations, np.int32), numbers[heads + 1]]
        self._rows.extend(np.stack(rows, axis=1))
        asked = self._asked
        self._ids, self._heads, self._relations, self._asked = [], array("q"), array("i"), []
        for place, then in asked:
            then(int(numbers[place]))

    def parts(self) -> Iterator[TripleBlock]:
        """All triples, by ranges of heads that follow each other from 0 to the last entity."""
        self.flush()
        rows = self._rows.rows()
        counts = np.zeros(len(self.entities), np.int64)
        for block in blocks(rows):
            counts += np.bincount(block[:, 0], minlength=len(counts))
        bounds = ranges(counts)
        ends = np.concatenate([[0], np.cumsum(counts)])[bounds]
        separated = rows if len(bounds) == 2 else _blocks_of(rows, bounds, ends, self._folder)
        for heads, (begin, end) in zip(pairwise(bounds.tolist()), pairwise(ends.tolist()), strict=True):
            yield TripleBlock(*heads, distinct(np.array(separated[begin:end])))


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """An array in pieces of its first axis that are small enough to work on."""
    return (np.asarray(rows[begin : begin + BLOCK]) for begin in range(0, len(rows), BLOCK))


def ranges(counts: np.ndarray) -> np.ndarray:
    """Bounds of ranges of places whose counts sum up to `SORTED_AT_ONCE` at most, or that are a single place."""
    ends, bounds = np.cumsum(counts), [0]
    while bounds[-1] < len(counts):
        before = ends[bounds[-1] - 1] if bounds[-1] else 0
        bounds.append(max(bounds[-1] + 1, int(np.searchsorted(ends, before + SORTED_AT_ONCE, side="right"))))
    return np.array(bounds)


def distinct(rows: np.ndarray) -> np.ndarray:
    """The first of each triple [n, 3], sorted by head and otherwise in the order they came."""
    order = np.lexsort(rows.T[::-1])  # stable: the first of equals came first
    repeated = np.zeros(len(rows), np.bool_)
    repeated[order[1:]] = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
    rows = rows[~repeated]
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _blocks_of(rows: np.ndarray, bounds: np.ndarray, ends: np.ndarray, folder: Path | None) -> np.ndarray:
    """The rows with those of each range of heads together, in their order."""
    separated, filled = Spill.like(rows, folder), ends[:-1].copy()
    for block in blocks(rows):
        part = np.searchsorted(bounds, block[:, 0], side="right") - 1
        order = np.argsort(part, kind="stable")
        cuts = np.searchsorted(part[order], np.arange(len(filled) + 1))
        for number, (begin, end) in enumerate(pairwise(cuts.tolist())):
            separated[filled[number] : filled[number] + end - begin] = block[order[begin:end]]
            filled[number] += end - begin
    return separated
