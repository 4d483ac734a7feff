"""Choosing token rows for masking: the one loop that all masking strategies share.

A masking strategy proposes groups of rows in a random order. The loop accepts those that are free and fit into the
budget, until it is spent. The budget is rate x (free rows), rounded up or down at random so that the mean is exact, and
at least 1.

All sequences of a micro-batch are chosen from at once, in arrays of their rows one after the other; rows are counted
through all sequences. Each sequence has a budget and random numbers of its own, so its choice does not depend on the
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Listing
from functools import cached_property
from typing import Any

import numpy as np

from workbench.core.keyed import Numbers
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


class RowGroups:
    """Groups of rows of a stream, in their order, those of a sequence one after the other.

    Args:
        rows: [rows] numbers of rows, counted through all sequences, group after group.
        sizes: [groups] rows of each group.
        of: [groups] the sequence of each, never falling.
    """

    def __init__(self, rows: Any, sizes: Any, of: Any) -> None:
        self.rows, self.sizes, self.of = np.asarray(rows), np.asarray(sizes, np.int64), np.asarray(of, np.int64)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def begins(self) -> np.ndarray:
        """The place in `rows` at which each group begins [groups]."""
        return np.cumsum(self.sizes) - self.sizes

    def chosen(self, which: np.ndarray, most: np.ndarray | None = None) -> RowGroups:
        """These groups: their numbers, or a mask. Of each at most the first `most` rows [groups chosen]."""
        sizes = self.sizes[which]
        sizes = sizes if most is None else np.minimum(sizes, most)
        return RowGroups(self.rows[ranges(self.begins[which], sizes)], sizes, self.of[which])

    def where(self, kept: np.ndarray) -> RowGroups:
        """The groups with the rows of this mask [rows] alone; those left without rows are left out."""
        of_rows = np.repeat(np.arange(len(self)), self.sizes)[kept]
        sizes = np.bincount(of_rows, minlength=len(self))
        return RowGroups(self.rows[kept], sizes[sizes > 0], self.of[sizes > 0])

    def by_sequence(self, starts: np.ndarray) -> list[list[np.ndarray]]:
        """The groups of each sequence, as rows counted in the sequence; `starts` [sequences] are their first rows."""
        groups: list[list[np.ndarray]] = [[] for _ in starts]
        for begin, size, of in zip(self.begins.tolist(), self.sizes.tolist(), self.of.tolist(), strict=True):
            groups[of].append(self.rows[begin : begin + size] - starts[of])
        return groups


def ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """begin, begin + 1, ... of each range, one after the other [sum of sizes]."""
    whole: np.ndarray = np.arange(sizes.sum()) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return whole


def joined(groups: Iterable[RowGroups]) -> RowGroups:
    """All groups, by sequence in the order given."""
    listed = list(groups)
    if len(listed) == 1:
        return listed[0]
    columns = zip(*((each.rows, each.sizes, each.of) for each in listed), strict=True)
    rows, sizes, of = (np.concatenate(column) for column in columns) if listed else np.zeros((3, 0), np.int64)
    return RowGroups(rows, sizes, of).chosen(np.argsort(of, kind="stable"))


def column(streams: Listing[Fields], name: str) -> np.ndarray:
    """A field of the rows of several streams, one after the other [rows]."""
    return np.concatenate([fields[name] for fields in streams] or [np.zeros(0, np.int64)])


def begins_words(streams: Listing[Fields]) -> np.ndarray:
    """Whether each row of several streams belongs to another word or stream than the row before it [rows] bool."""
    of = np.repeat(np.arange(len(streams)), [len(fields["word_ids"]) for fields in streams])
    return (np.diff(column(streams, "word_ids"), prepend=-2) != 0) | (np.diff(of, prepend=-1) != 0)


class Selection:
    """The rows of a stream that may still be selected in each sequence, and the groups selected so far.

    Attributes:
        starts: [sequences] the first row of each sequence.
        owners: [rows] the sequence of each row.
        free: [rows] bool: neither special, nor labelled by an earlier objective, nor injected, nor selected.
        candidates: the rows that were free before the first one was selected.
        words: [rows] numbers that differ where a row belongs to another word than the row before it.
        left: [sequences] what is left of the budget.
    """

    def __init__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> None:
        self.sequences, self.stream, self.numbers = sequences, stream, numbers
        self.fields = [sequence.fields(stream) for sequence in sequences]
        sizes = np.array([len(fields["special"]) for fields in self.fields], np.int64)
        self.starts = np.cumsum(sizes) - sizes
        self.owners: np.ndarray = np.repeat(np.arange(len(sizes)), sizes)
        self.free = ~(self.column("special") | self.column("taken")).astype(np.bool_)
        self.candidates: np.ndarray = np.flatnonzero(self.free)
        self.left = np.zeros(len(sizes), np.int64)
        free = self.counted(self.candidates)
        self.left = np.minimum(np.maximum(self.rounded(rate * free), 1), free)
        self._accepted: list[RowGroups] = []
        self._spare: list[RowGroups] = []  # free, but too large

    def column(self, name: str) -> np.ndarray:
        """A field of all sequences [rows]."""
        return column(self.fields, name)

    @cached_property
    def words(self) -> np.ndarray:
        return np.cumsum(begins_words(self.fields))

    @property
    def groups(self) -> RowGroups:
        """The groups selected so far, those of a sequence in the order in which they were."""
        return joined(self._accepted)

    @property
    def selected(self) -> np.ndarray:
        """[sequences] bool: whether a row of each was selected."""
        some = np.zeros(len(self.left), np.bool_)
        for groups in self._accepted:
            some[groups.of] = True
        return some

    def counted(self, rows: np.ndarray) -> np.ndarray:
        """[sequences] the number of these rows in each."""
        return np.bincount(self.owners[rows], minlength=len(self.left))

    def rounded(self, expected: np.ndarray) -> np.ndarray:
        """[sequences] whole numbers whose means are the `expected` ones."""
        whole = expected.astype(np.int64)
        return whole + (self.numbers.random() < expected - whole)

    def take(self, groups: RowGroups, *, cut: bool = False, beyond: bool = False, more: bool = False) -> None:
        """Accept proposals until the budgets are spent.

        A group with a row that is not free is skipped. So is one that exceeds the rest of the budget, unless it is
        `cut` to it, or may go `beyond` it; then `settle`, unless `more` proposals follow.
        """
        turn = np.searchsorted(groups.of, np.arange(len(self.left)))
        last = np.searchsorted(groups.of, np.arange(len(self.left)), side="right")
        while len(which := turn[(turn < last) & (beyond | (self.left > 0))]):
            proposed = groups.chosen(which)
            turn[proposed.of] += 1
            free = np.logical_and.reduceat(self.free[proposed.rows], proposed.begins)
            left = self.left[proposed.of]
            fits = (proposed.sizes <= left) | beyond | cut
            self._accept(proposed.chosen(free & fits, left[free & fits] if cut else None))
            if not fits.all():
                self._spare.append(proposed.chosen(free & ~fits))
        if not more:
            self.settle()

    def settle(self) -> None:
        """Accept the smallest group that was too large in each sequence of which nothing was accepted."""
        if self._spare:
            spare, self._spare = joined(self._spare), []
            spare = spare.chosen(~self.selected[spare.of])
            spare = spare.chosen(np.lexsort((spare.sizes, spare.of)))
            self._accept(spare.chosen(np.diff(spare.of, prepend=-1) != 0))

    def take_tokens(
        self, among: np.ndarray | None = None, most: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> None:
        """Spend the rest of the budgets on single free rows.

        Args:
            among: [rows] bool: the only rows that are selected.
            most: [sequences] the most that are selected of each.
            weights: [rows] of the rows, which are drawn one after another; by default all are alike.
        """
        left = self.left if most is None else np.minimum(self.left, most)
        rows = np.flatnonzero((self.free if among is None else self.free & among) & (left > 0)[self.owners])
        counts = self.counted(rows)
        drawn = self.numbers.random(counts)
        if weights is not None:  # the smallest of exponentials: drawn by weight
            drawn = -np.log1p(-drawn) / weights[rows]
        rows = rows[np.lexsort((drawn, self.owners[rows]))]
        of = self.owners[rows]
        chosen = ranges(np.zeros_like(counts), counts) < left[of]
        self._accept(RowGroups(rows[chosen], np.ones(int(chosen.sum())), of[chosen]))

    def shuffled(self, groups: RowGroups) -> RowGroups:
        """The groups of each sequence in random order."""
        drawn = self.numbers.random(np.bincount(groups.of, minlength=len(self.left)))
        return groups.chosen(np.lexsort((drawn, groups.of)))

    def shuffled_words(self) -> RowGroups:
        """The free rows of each word, in random order."""
        rows = self.candidates
        first = np.flatnonzero((np.diff(self.words[rows], prepend=-1) != 0) | (np.diff(rows, prepend=-2) != 1))
        return self.shuffled(RowGroups(rows, np.diff(first, append=len(rows)), self.owners[rows[first]]))

    def shuffled_spans(self, spans: Listing[Listing[Span]]) -> RowGroups:
        """The rows of the spans of each sequence, in random order."""
        of = [number for number, own in enumerate(spans) for _ in own]
        places = np.array([(span.start, span.end) for own in spans for span in own], np.int64).reshape(-1, 2)
        sizes = places[:, 1] - places[:, 0]
        return self.shuffled(RowGroups(ranges(places[:, 0] + self.starts[of], sizes), sizes, of))

    def _accept(self, groups: RowGroups) -> None:
        if len(groups):
            self._accepted.append(groups)
            self.free[groups.rows] = False
            np.subtract.at(self.left, groups.of, groups.sizes)
