"""The items that a micro-batch reads: how an epoch's order is split among the lanes, as functions of (number, lane).

`shuffled`: every lane has a range of an epoch's order, and successive micro-batches advance in it. `continuous`: every
sample of a micro-batch has its own range, that of its slot. So the samples at a slot of successive micro-batches follow
each other in the order, where the windows of a text are neighbours (`EpochOrder`).

Several corpora are drawn by weight: exactly over blocks of draws, shuffled by (seed, lane, block), without state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator


class Reads(NamedTuple):
    """The samples of a micro-batch, one entry a sample [samples]: the corpus, the epoch, and the index in the epoch's
    order.

    `begins` exists in continuous order only: whether the slot's range begins there.
    """

    corpus: np.ndarray
    epoch: np.ndarray
    at: np.ndarray
    begins: np.ndarray | None = None


class ShuffledLanes:
    """Lanes of shuffled order: a lane's draws are shared among the corpora by weight.

    Args:
        totals: items of an epoch of each corpus.
        weights: weights of the corpora.
        lanes: micro-batches of a step.
        size: samples of a micro-batch.
    """

    def __init__(self, totals: Sequence[int], weights: list[float], *, lanes: int, size: int, seed: int) -> None:
        self.lanes, self.size = lanes, size
        self.totals = np.array(totals, np.int64)
        self._mixture = Mixture(weights, seed=seed)
        self.needed = [lanes] * len(totals)
        self.per_step = size * lanes * self._mixture.counts / self._mixture.length

    def reads(self, number: int, lane: int) -> Reads:
        corpus, drawn = self._mixture.draws(lane, number * self.size, self.size)
        total = self.totals[corpus]
        start = lane * total // self.lanes
        epoch, offset = np.divmod(drawn, (lane + 1) * total // self.lanes - start)
        return Reads(corpus, epoch, start + offset)


class ContinuousLanes:
    """Lanes of continuous order: every slot of every lane reads one corpus; slots are shared among corpora by weight.

    Raises:
        WorkbenchError: the weight of a corpus is too small for a slot.
    """

    def __init__(self, totals: Sequence[int], weights: list[float], *, lanes: int, size: int) -> None:
        self.size = size
        self.totals = np.array(totals, np.int64)
        self.needed = _slots_each(weights, lanes * size)
        self.per_step = np.array(self.needed, np.float64)
        turns = [(np.arange(count) + 0.5) / count for count in self.needed]  # every lane gets some of each corpus
        order = np.argsort(np.concatenate(turns), kind="stable")
        self._corpus = np.repeat(np.arange(len(self.needed)), self.needed)[order]
        self._turn = np.concatenate([np.arange(count) for count in self.needed])[order]

    def reads(self, number: int, lane: int) -> Reads:
        slots = slice(lane * self.size, (lane + 1) * self.size)
        corpus, turn = self._corpus[slots], self._turn[slots]
        total, among = self.totals[corpus], np.array(self.needed)[corpus]
        start = turn * total // among
        epoch, offset = np.divmod(number, (turn + 1) * total // among - start)
        return Reads(corpus, epoch, start + offset, offset == 0)


def _slots_each(weights: list[float], slots: int) -> list[int]:
    """The number of slots that read each corpus, nearest to the weights."""
    counts = nearest_counts(weights, slots)
    if not counts.all():
        raise WorkbenchError(
            f"order: continuous divides the {slots} texts that are read in parallel (train.global_batch_size) among "
            f"the corpora by their weights {weights}, and one corpus gets none; raise its weight or global_batch_size"
        )
    return [int(count) for count in counts]


LONGEST_BLOCK = 10_000
USUAL_BLOCK = 64


def block_counts(weights: list[float]) -> np.ndarray:
    """The number of draws of each corpus in a block: the shortest block with the exact weights, repeated to a useful
    length. Weights without a short common block get the nearest counts over 10,000 draws.

    Raises:
        WorkbenchError: a weight is not positive, or too small relative to the others to be drawn at all.
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
    """`total` divided among the corpora: the whole numbers nearest to their weights.

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
    """The corpus that each draw of a lane reads, and the number of earlier draws of that corpus in the lane."""

    def __init__(self, weights: list[float], *, seed: int) -> None:
        self.counts = block_counts(weights)
        self.seed = seed
        self.length = int(self.counts.sum())
        self._block = lru_cache(256)(self._shuffled)

    def draws(self, lane: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """For the draws [first, first + count) of a lane: corpus [count], and the number of the draw in its corpus."""
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
