"""Choosing token rows for masking: the one loop that all masking strategies share.

A masking strategy proposes groups of rows in a random order. The loop accepts those that are free and fit into the
budget, until it is spent. The budget is rate x (free rows), rounded up or down at random so that the mean is exact, and
at least 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from workbench.sequences.sequence import Fields, Sequence, Span


def selectable(fields: Fields) -> np.ndarray:
    """A mask of the rows of a stream of tokens that may be masked or moved [rows] bool.

    Excluded are special ones, and those that an earlier objective labelled or a transform injected.
    """
    free: np.ndarray = ~(fields["special"] | fields["taken"])
    return free


def whole_words(fields: Fields) -> np.ndarray:
    """A mask of the rows of a stream of tokens that are a whole word [rows] bool, and not a piece of one."""
    words = fields["word_ids"]
    cut = np.diff(words) == 0
    whole: np.ndarray = (words >= 0) & ~(np.append(cut, False) | np.insert(cut, 0, False))
    return whole


class Selection:
    """The rows of one stream of a sequence that may still be selected, and the groups selected so far.

    `free` [rows] bool: neither special, nor labelled by an earlier objective, nor injected, nor selected.
    """

    def __init__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> None:
        tokens = sequence.fields(stream)
        self.free = selectable(tokens)
        self.words: np.ndarray = tokens["word_ids"]
        self.candidates: np.ndarray = np.flatnonzero(self.free)
        expected = rate * len(self.candidates)
        budget = int(expected) + int(rng.random() < expected - int(expected))
        self.left = min(max(budget, 1), len(self.candidates))
        self.groups: list[np.ndarray] = []

    def take(self, groups: Iterable[np.ndarray], cut: bool = False, beyond: bool = False) -> list[np.ndarray]:
        """Accept proposals until the budget is spent; returns all groups accepted so far.

        A group with a row that is not free is skipped. So is one that exceeds the rest of the budget, unless it is
        `cut` to it, or may go `beyond` it; if nothing at all fits, the smallest proposal is accepted.
        """
        smallest: np.ndarray | None = None
        for rows in groups:
            if self.left <= 0 and not beyond:
                break
            if not self.free[rows].all():
                continue
            if len(rows) > self.left and not beyond:
                if not cut:
                    smallest = rows if smallest is None or len(rows) < len(smallest) else smallest
                    continue
                rows = rows[: self.left]
            self._accept(rows)
        if not self.groups and smallest is not None:
            self._accept(smallest)
        return self.groups

    def take_tokens(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Spend the rest of the budget on single free rows."""
        free = np.flatnonzero(self.free)
        if self.left > 0 and len(free):
            rows = rng.choice(free, min(self.left, len(free)), replace=False)
            self.free[rows] = False
            self.left -= len(rows)
            self.groups.extend(np.split(rows, len(rows)))
        return self.groups

    def _accept(self, rows: np.ndarray) -> None:
        self.groups.append(rows)
        self.free[rows] = False
        self.left -= len(rows)


def shuffled_words(selection: Selection, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The free rows of each word, in random order."""
    rows = selection.candidates
    if not len(rows):
        return
    new = (np.diff(selection.words[rows]) != 0) | (np.diff(rows) != 1)
    bounds = np.concatenate([[0], np.flatnonzero(new) + 1, [len(rows)]]).tolist()
    for i in rng.permutation(len(bounds) - 1).tolist():
        yield rows[bounds[i] : bounds[i + 1]]


def shuffled_spans(spans: list[Span], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The rows of each span, in random order."""
    for i in rng.permutation(len(spans)).tolist():
        yield np.arange(spans[i].start, spans[i].end)
