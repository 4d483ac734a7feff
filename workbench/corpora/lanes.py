"""Which items a micro-batch reads: how an epoch's order is cut among the lanes; functions of (number, lane).

`shuffled`: every lane has a range of an epoch's order, and a micro-batch reads on in it. `continuous`: every sample of
a micro-batch has a range of its own, its slot's, so that the samples at a slot of successive micro-batches follow each
other in the order, in which the windows of a text are neighbours (`Order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workbench.corpora.mixture import Mixture, nearest_counts
from workbench.errors import WorkbenchError


class Reads(NamedTuple):
    """What a micro-batch reads, an entry a sample [samples]: of a corpus, in an epoch, the place in the epoch's order.

    `begins`, of continuous order alone: whether the slot's range begins there, before which it read something else.
    """

    corpus: np.ndarray
    epoch: np.ndarray
    at: np.ndarray
    begins: np.ndarray | None = None


class ShuffledLanes:
    """A lane's draws are shared among the corpora by weight.

    Args:
        totals: items of an epoch of each corpus.
        weights: of the corpora.
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
    """Every slot of every lane reads one corpus; the slots are shared among the corpora by weight.

    Raises:
        WorkbenchError: a corpus has too small a weight for a slot.
    """

    def __init__(self, totals: Sequence[int], weights: list[float], *, lanes: int, size: int) -> None:
        self.size = size
        self.totals = np.array(totals, np.int64)
        self.needed = _slots_each(weights, lanes * size)
        self.per_step = np.array(self.needed, np.float64)
        turns = [(np.arange(count) + 0.5) / count for count in self.needed]  # so that every lane gets some of each
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
    """How many slots read each corpus: the nearest numbers to the weights."""
    counts = nearest_counts(weights, slots)
    if not counts.all():
        raise WorkbenchError(
            f"order: continuous shares the {slots} texts that are read side by side (train.global_batch_size) among "
            f"the corpora by their weights {weights}, and one gets none; raise its weight or global_batch_size"
        )
    return [int(count) for count in counts]
