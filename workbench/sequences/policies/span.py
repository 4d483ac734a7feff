"""Contiguous spans of whole words with geometric lengths (SpanBERT, arXiv:1907.10529, section 3.1).

A length in words is drawn from the geometric distribution, clipped and normalised anew; an anchor is drawn uniformly
over the free tokens; the span begins at the anchor's word and takes words to the right until the length, the end of the
free stretch or the budget is reached (the budget may cut the last word). It may pass over spans selected before it;
those that overlap or touch are one, as in the released code. The paper's p is 0.2 (that code's default is 0.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.options.bounds import PartShare
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence

Longest = Annotated[int, Ge(1), Le(1000)]


def length_distribution(p: float, longest: int) -> np.ndarray:
    """Probabilities of the lengths 1..longest: p (1 - p)^(l - 1), normalised."""
    weights = p * (1 - p) ** np.arange(longest)
    return weights / weights.sum()


class Span(Policy):
    """Span masking: contiguous spans of whole words with geometric lengths (SpanBERT, arXiv:1907.10529, section 3.1).

    Args:
        p: parameter of the geometric distribution, in (0, 1).
        longest: greatest length in words.
    """

    by_words = True

    def __init__(self, p: PartShare = 0.2, longest: Longest = 10) -> None:
        self.cumulative = np.cumsum(length_distribution(p, longest))

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per span, from left to right."""
        selection = Selection(sequence, stream, rate, rng)
        return merged(selection.take(self.proposed(selection, rng), cut=True))

    def proposed(self, selection: Selection, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The rows of one span after the other, each less those that are selected already."""
        free, words, candidates = selection.free.copy(), selection.words, selection.candidates
        while selection.left > 0:
            length = int(np.searchsorted(self.cumulative, rng.random()))
            anchor = int(candidates[rng.integers(len(candidates))])
            if selection.free[anchor]:
                rows = span_at(free, words, anchor, length + 1)
                yield rows[selection.free[rows]]


def span_at(free: np.ndarray, words: np.ndarray, anchor: int, length: int) -> np.ndarray:
    """The rows of `length` words, the first of them that of the row `anchor`, as far as the free stretch goes."""
    start = anchor
    while start > 0 and free[start - 1] and words[start - 1] == words[anchor]:
        start -= 1
    return np.arange(start, _end(free, words, start, length))


def merged(groups: list[np.ndarray]) -> list[np.ndarray]:
    """The rows of all groups, those that are neighbours together, from left to right."""
    rows = np.sort(np.concatenate(groups)) if groups else np.zeros(0, np.int64)
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)


def _end(free: np.ndarray, words: np.ndarray, start: int, length: int) -> int:
    """The row after `length` words from `start`, or after the free stretch."""
    row, seen = start, 0
    while row < len(free) and free[row]:
        seen += row == start or words[row] != words[row - 1]
        if seen > length:
            break
        row += 1
    return row
