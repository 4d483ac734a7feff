"""Drawing from several corpora by weight: exact over blocks of draws, shuffled by (seed, lane, block), stateless."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from workbench.errors import WorkbenchError
from workbench.keyed import generator

LONGEST_BLOCK = 10_000
USUAL_BLOCK = 64


def block_counts(weights: list[float]) -> np.ndarray:
    """How many draws of a block go to each corpus: the shortest block that gives the weights exactly, repeated to a
    useful length; for weights without a short common block the nearest counts over 10,000 draws.

    Raises:
        WorkbenchError: a weight is not positive, or too small beside the others to be drawn at all.
    """
    shares = _shares(weights)
    lengths = np.arange(1, LONGEST_BLOCK + 1)
    misses = np.abs(np.outer(lengths, shares) - np.rint(np.outer(lengths, shares))).max(axis=1)
    exact = np.flatnonzero(misses < 1e-9 * lengths)
    length = int(lengths[exact[0]]) if len(exact) else LONGEST_BLOCK
    length *= -(-USUAL_BLOCK // length)
    counts = nearest_counts(weights, length)
    if not counts.all():
        raise WorkbenchError(
            f"the weights {weights} differ too much: the smallest would get less than 1 of {length} draws; "
            "leave that corpus out, or raise its weight"
        )
    return counts


def nearest_counts(weights: list[float], total: int) -> np.ndarray:
    """`total` divided among the corpora: the whole numbers that are nearest to their weights.

    Raises:
        WorkbenchError: a weight is not positive.
    """
    wanted = _shares(weights) * total
    counts: np.ndarray = np.floor(wanted + 1e-6).astype(np.int64)
    counts[np.argsort(counts - wanted, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _shares(weights: list[float]) -> np.ndarray:
    if not weights or any(not weight > 0 or weight == float("inf") for weight in weights):
        raise WorkbenchError(f"the weights of corpora must be positive numbers; found {weights}")
    return np.array(weights, np.float64) / sum(weights)


class Mixture:
    """Which corpus each draw of a lane reads, and how many draws of that corpus came before it in the lane."""

    def __init__(self, weights: list[float], *, seed: int) -> None:
        self.counts = block_counts(weights)
        self.seed = seed
        self.length = int(self.counts.sum())
        self._block = lru_cache(256)(self._shuffled)

    def draws(self, lane: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """For the draws [first, first + count) of a lane: corpus [count], and its number among that corpus's draws."""
        if len(self.counts) == 1:
            return np.zeros(count, np.int64), np.arange(first, first + count)
        draw = np.arange(first, first + count)
        corpus, number = np.empty_like(draw), np.empty_like(draw)
        for block in range(first // self.length, (first + count - 1) // self.length + 1):
            here = draw // self.length == block
            which, before = self._block(lane, block)
            place = draw[here] - block * self.length
            corpus[here] = which[place]
            number[here] = block * self.counts[which[place]] + before[place]
        return corpus, number

    def _shuffled(self, lane: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        which = np.repeat(np.arange(len(self.counts)), self.counts)
        generator(self.seed, "mixture", lane, block).shuffle(which)
        before = np.empty_like(which)
        for corpus, count in enumerate(self.counts):
            before[which == corpus] = np.arange(count)
        return which, before

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "_block"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._block = lru_cache(256)(self._shuffled)
