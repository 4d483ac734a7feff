"""One pass over corpora in their own order, for evaluation."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.reading.shards_ahead import Needed, ShardsAhead
from workbench.corpora.reading.source import SamplePlace, SampleSource
from workbench.sequences.sequence import Sample, Slot


class FiniteBatch(NamedTuple):
    """Items of a micro-batch of a finite pass: their indices `at` among all [items]. For texts in continuous order it
    also has their slots, and whether each slot begins."""

    at: np.ndarray
    slots: np.ndarray | None = None
    begins: np.ndarray | None = None


class EvenRuns:
    """Micro-batch (number, lane) is the (number * lanes + lane)-th run of `size` items; the last run may be short, and
    lanes beyond it get none. If there are more runs than `max_steps` steps read, the runs that are read are evenly
    spaced over the whole, always the same ones."""

    def __init__(self, total: int, lanes: int, size: int, max_steps: int | None = None) -> None:
        self.total, self.lanes, self.size = total, lanes, size
        self._runs = -(-total // size)
        self._read_runs = self._runs if max_steps is None else min(self._runs, max_steps * lanes)

    @property
    def read(self) -> int:
        """Items of the pass: fewer than `total` if `max_steps` leaves some out."""
        beyond = (self._run(self._read_runs - 1) + 1) * self.size - self.total  # missing items of the last run
        return self._read_runs * self.size - max(beyond, 0)

    @property
    def steps(self) -> int:
        """Micro-batches of each lane; the last one may be short or empty."""
        return -(-self._read_runs // self.lanes)

    def batch(self, number: int, lane: int) -> FiniteBatch:
        """Micro-batch `number` of a lane."""
        turn = number * self.lanes + lane
        if turn >= self._read_runs:
            return FiniteBatch(np.arange(0))
        first = self._run(turn) * self.size
        return FiniteBatch(np.arange(first, min(first + self.size, self.total)))

    def _run(self, turn: int) -> int:
        """The run of items that a turn reads: the middle one of the turn's equal share of all runs."""
        return (2 * turn + 1) * self._runs // (2 * self._read_runs)


class ParallelRanges:
    """All items are split into a range for every slot of every lane. Micro-batch (number, lane) has the number-th item
    of each of the lane's ranges; `max_steps` truncates the ranges."""

    def __init__(self, total: int, lanes: int, size: int, max_steps: int | None = None) -> None:
        self.total, self.lanes, self.size = total, lanes, size
        bounds = np.arange(lanes * size + 1) * total // (lanes * size)
        self._starts, self._widths = bounds[:-1], np.diff(bounds)
        if max_steps is not None:
            self._widths = np.minimum(self._widths, max_steps)

    @property
    def read(self) -> int:
        """See `EvenRuns`."""
        return int(self._widths.sum())

    @property
    def steps(self) -> int:
        """See `EvenRuns`."""
        return int(self._widths.max())

    def batch(self, number: int, lane: int) -> FiniteBatch:
        """Micro-batch `number` of a lane."""
        slots = np.arange(self.size)
        slots = slots[self._widths[lane * self.size + slots] > number]
        return FiniteBatch(self._starts[lane * self.size + slots] + number, slots, np.full(len(slots), number == 0))


class FinitePass:
    """Every item once, in the corpora's own order, or those that `cut` selects. `Reader.finite` creates it.

    Every rank makes the same number of `steps`; a lane's micro-batch may be short or [] at the end.
    """

    def __init__(self, source: SampleSource, cut: EvenRuns | ParallelRanges) -> None:
        self._source, self._cut = source, cut
        self.lanes, self.micro_batch_size = cut.lanes, cut.size
        self.total, self.read, self.steps = cut.total, cut.read, cut.steps
        self._ends = np.cumsum(np.concatenate([items.counts for items in source.items]))
        self._shards = [(c, shard) for c, items in enumerate(source.items) for shard in range(len(items.counts))]
        self._starts = np.cumsum([0, *(items.total for items in source.items)]).tolist()
        self._ahead = ShardsAhead([items.corpus for items in source.items], self._shards_at, cut.steps)

    @property
    def skipped(self) -> Counter[str]:
        """Samples skipped by this process, by reason."""
        return self._source.skipped

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """See `Reader.skip`."""
        self._source.skip(error, reason)

    def wrong_sizes(self) -> list[str]:
        """See `Reader.wrong_sizes`."""
        return self._source.wrong_sizes()

    def of_first(self, records: int) -> int:
        """The number of items in the first records of all corpora together."""
        found, left = 0, records
        for corpus, shard in self._shards:
            if left <= 0:
                break
            items = self._source.items[corpus]
            found += items.of_first(shard, left)
            left -= items.corpus.shards[shard].records
        return found

    def micro_batch(self, number: int, lane: int) -> list[Sample]:
        """The samples of a micro-batch; [] beyond the end."""
        if self._ahead.wanted:
            self._ahead.reach(number, lane)
        return self._source.read(self.places(number, lane))

    def _shards_at(self, number: int, lane: int) -> Needed:
        """(corpus, shard) of every item of a micro-batch."""
        at = np.searchsorted(self._ends, self._cut.batch(number, lane).at, side="right")
        return {self._shards[n] for n in at.tolist()}

    def places(self, number: int, lane: int) -> list[SamplePlace]:
        """The places of the samples of a micro-batch, without reading them."""
        index, slots, begins = self._cut.batch(number, lane)
        places = []
        for n, x in enumerate(index.tolist()):
            at = int(np.searchsorted(self._ends, x, side="right"))
            corpus, shard = self._shards[at]
            item = x - (int(self._ends[at - 1]) if at else 0)
            slot = None
            if slots is not None and begins is not None:
                slot = Slot(int(slots[n]), not begins[n] and self._source.items[corpus].resumes(shard, item))
            places.append(SamplePlace(corpus, shard, item, (corpus, 0, x - self._starts[corpus]), slot))
        return places
