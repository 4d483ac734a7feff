"""N-grams of drawn lengths: tokens (UniLM, arXiv:1905.03197, section 2.4) or words (ALBERT, arXiv:1909.11942, eq. 1).

A length is drawn by its weight, then a place among those where so many free neighbours are left, each as likely as any
other; where there is none the n-gram is shorter. So the lengths keep their shares however much is masked already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Len

from workbench.errors import WorkbenchError
from workbench.options.bounds import NotNegative
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence

Weights = Annotated[list[NotNegative], Len(1, 100)]


class Ngram(Policy):
    """N-gram masking of tokens (UniLM, arXiv:1905.03197) or words (ALBERT, arXiv:1909.11942, equation 1). N-grams
    do not overlap.

    Args:
        lengths: weights of single units, bigrams, trigrams, ...: [8, 1, 1] masks one token four times out of five
            (UniLM), [6, 3, 2] is p(n) = (1/n) / (1 + 1/2 + 1/3) (ALBERT).
        unit: what an n-gram has n of; of words none is cut by the budget.

    Raises:
        WorkbenchError: no length has a weight.
    """

    def __init__(self, lengths: Weights, unit: Literal["token", "word"] = "token") -> None:
        if not sum(lengths):
            raise WorkbenchError(f"lengths = {lengths}; allowed: weights of which one at least is above 0")
        self.cumulative = np.cumsum(lengths) / sum(lengths)
        self.words = unit == "word"

    @classmethod
    def goes_by_words(cls, **options: Any) -> bool:
        """Where its unit is a word."""
        return options.get("unit") == "word"

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per n-gram, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        return selection.take(self._ngrams(selection, rng), cut=not self.words)

    def _ngrams(self, selection: Selection, rng: np.random.Generator) -> Iterator[np.ndarray]:
        starts, ends = self._units(selection)
        free, next_to = np.ones(len(starts), np.bool_), starts[1:] == ends[:-1]
        while free.any():
            length = min(int(np.searchsorted(self.cumulative, rng.random(), side="right")), len(self.cumulative) - 1)
            places, found = _places(free, next_to, length + 1)
            first = int(places[rng.integers(len(places))])
            free[first : first + found] = False
            yield np.arange(starts[first], ends[first + found - 1])

    def _units(self, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        """Where the free tokens or words begin and end, in rows."""
        rows = selection.candidates
        if not self.words or not len(rows):
            return rows, rows + 1
        new = (np.diff(selection.words[rows]) != 0) | (np.diff(rows) != 1)
        return rows[np.append(True, new)], rows[np.append(new, True)] + 1


def _places(free: np.ndarray, next_to: np.ndarray, length: int) -> tuple[np.ndarray, int]:
    """The units at which an n-gram of this length can begin, or of the greatest length below that can; that length."""
    fits, found = free, 1
    for longer in range(2, length + 1):
        more = fits[:-1] & next_to[longer - 2 :] & free[longer - 1 :]
        if not more.any():
            break
        fits, found = more, longer
    return np.flatnonzero(fits), found
