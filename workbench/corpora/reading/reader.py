"""Reading micro-batches as a pure function of (number, lane), independent of ranks, workers and restarts.

An epoch's order is split into L equal ranges, one per lane; micro-batch (number, lane) advances in its lane, across the
ends of epochs. So the state of a reader is the number of the next micro-batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.finite_pass import EvenRuns, FinitePass, ParallelRanges
from workbench.corpora.reading.lanes import ContinuousLanes, ShuffledLanes
from workbench.corpora.reading.order import NEWEST, EpochOrder, OrderNumber
from workbench.corpora.reading.shards_ahead import GroupsAhead
from workbench.corpora.reading.source import OnError, SamplePlace, SampleSource
from workbench.sequences.sequence import Sample, Slot

if TYPE_CHECKING:
    from workbench.core.processes.distributed import World

Reading = Literal["shuffled", "continuous"]
"""The orders in which items are read."""


class Reader:
    """Endless reading for training.

    Args:
        corpora: (corpus, weight) pairs.
        seed: governs the order.
        lanes: micro-batches of one step over all ranks.
        micro_batch_size: samples of a micro-batch.
        unit: the unit in which the task's builder splits records: None, `text`, or a list field.
        window: width of text windows in characters.
        order: `shuffled`, or `continuous`: every sample of a micro-batch continues the sample at the same index in the
            lane's previous micro-batch, until the text ends; the samples' `slot` says so.
        order_number: of the shuffled order (`workbench.corpora.reading.order`).
        by_item: the draws of an item differ by the epoch alone, for tasks that repeat draws in later epochs.
        on_error: `stop` at a record that cannot be read or used, or `skip` it: the sample is missing from its
            micro-batch (which stays a pure function of number and lane) and counted in `skipped`, by reason.
        skip_limit: number of samples that each process may skip before it stops.
        world: ranks that all make this reader; they share the work of opening it.

    Raises:
        WorkbenchError: an empty corpus, a unit that a corpus lacks, fewer items than lanes, or continuous order without
            windows of texts.
    """

    def __init__(
        self,
        corpora: Sequence[tuple[Corpus, float]],
        *,
        seed: int,
        lanes: int,
        micro_batch_size: int,
        unit: str | None = None,
        window: int | None = None,
        order: Reading = "shuffled",
        order_number: OrderNumber = NEWEST,
        by_item: bool = False,
        on_error: OnError = "stop",
        skip_limit: int = 100,
        world: World | None = None,
    ) -> None:
        self._source = SampleSource([corpus for corpus, _ in corpora], unit, window, on_error, skip_limit, world)
        items = self._source.items
        totals, weights = [each.total for each in items], [weight for _, weight in corpora]
        self.lanes, self.micro_batch_size, self.by_item = lanes, micro_batch_size, by_item
        self._cut: ShuffledLanes | ContinuousLanes
        if order == "continuous":
            self._source.check_continuous()
            self._orders = [EpochOrder(each.counts, seed=seed, runs=each.runs) for each in items]
            self._cut = ContinuousLanes(totals, weights, lanes=lanes, size=micro_batch_size)
            what = "texts that are read in parallel (train.global_batch_size)"
        else:
            self._orders = [EpochOrder(each.counts, seed=seed, number=order_number) for each in items]
            self._cut = ShuffledLanes(totals, weights, lanes=lanes, size=micro_batch_size, seed=seed)
            what = "lanes (global_batch_size / micro_batch_size)"
        for each, needed in zip(items, self._cut.needed, strict=True):
            if each.total < needed:
                raise WorkbenchError(
                    f"corpus {each.corpus.name!r} has {each.total} items for {needed} {what}; use a larger "
                    "micro_batch_size, a smaller global_batch_size or more data"
                )

        self._ahead = GroupsAhead([each.corpus for each in items], self._orders, self._cut)

    @property
    def corpora(self) -> list[Corpus]:
        """The corpora, in the order of `items` and `epochs`."""
        return [items.corpus for items in self._source.items]

    @property
    def skipped(self) -> Counter[str]:
        """Samples skipped by this process, by reason."""
        return self._source.skipped

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """Skip a sample that was read and is unusable.

        Raises:
            WorkbenchError: `error` itself unless `on_error` is `skip`; or more than `skip_limit` samples were skipped.
        """
        self._source.skip(error, reason)

    def wrong_sizes(self) -> list[str]:
        """`Corpus.wrong_sizes` of all corpora."""
        return self._source.wrong_sizes()

    def items(self, corpus: int) -> int:
        """Items of an epoch of a corpus."""
        return self._source.items[corpus].total

    def micro_batch(self, number: int, lane: int) -> list[Sample]:
        """The samples of micro-batch `number` (from 0) of a lane.

        Raises:
            BadRecordError: a record cannot be read; the message names shard, key and reason.
        """
        if self._ahead.wanted:
            self._ahead.reach(number, lane)
        return self._source.read(self.places(number, lane))

    def places(self, number: int, lane: int) -> list[SamplePlace]:
        """The places of the samples of a micro-batch, without reading them."""
        if not 0 <= lane < self.lanes or number < 0:
            raise ValueError(f"micro-batch {number} of lane {lane}: there are lanes 0..{self.lanes - 1}")
        reads = self._cut.reads(number, lane)
        shard, item = np.empty_like(reads.at), np.empty_like(reads.at)
        read = set(zip(reads.corpus.tolist(), reads.epoch.tolist(), strict=True))
        for corpus, epoch in read:
            here = (reads.corpus == corpus) & (reads.epoch == epoch) if len(read) > 1 else slice(None)
            shard[here], item[here] = self._orders[corpus].locate(epoch, reads.at[here])
        columns = (column.tolist() for column in (reads.corpus, reads.epoch, reads.at, shard, item))
        places = [
            SamplePlace(c, s, i, (c, epoch, s, i) if self.by_item else (c, epoch, x))
            for c, epoch, x, s, i in zip(*columns, strict=True)
        ]
        return places if reads.begins is None else self._in_slots(places, reads.begins.tolist())

    def _in_slots(self, places: list[SamplePlace], begins: list[bool]) -> list[SamplePlace]:
        items = self._source.items
        return [
            place._replace(slot=Slot(n, not begin and items[place.corpus].resumes(place.shard, place.item)))
            for n, (place, begin) in enumerate(zip(places, begins, strict=True))
        ]

    def epochs(self, number: int) -> list[float]:
        """The number of times that each corpus was read before micro-batch `number` of every lane."""
        read = number * self._cut.per_step
        return [float(items / order.total) for items, order in zip(read, self._orders, strict=True)]

    @staticmethod
    def finite(
        corpora: Sequence[Corpus],
        *,
        lanes: int,
        micro_batch_size: int,
        unit: str | None = None,
        window: int | None = None,
        order: Reading = "shuffled",
        on_error: OnError = "stop",
        skip_limit: int = 100,
        max_steps: int | None = None,
        world: World | None = None,
    ) -> FinitePass:
        """One pass for evaluation; see `FinitePass`."""
        source = SampleSource(corpora, unit, window, on_error, skip_limit, world)
        if order == "continuous":
            source.check_continuous()
        total = sum(items.total for items in source.items)
        cut = (ParallelRanges if order == "continuous" else EvenRuns)(total, lanes, micro_batch_size, max_steps)
        return FinitePass(source, cut)
