"""Reading micro-batches: a pure function of (number, lane), whatever the ranks, workers and restarts.

An epoch's order is cut into L equal ranges, one per lane; micro-batch (number, lane) reads on in its lane, across
the ends of epochs. So the state of a reader is the number of the next micro-batch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from workbench.corpora.corpus import Corpus
from workbench.corpora.items import Items
from workbench.corpora.mixture import Mixture
from workbench.corpora.order import Order
from workbench.corpora.record import BadRecordError
from workbench.errors import WorkbenchError
from workbench.keyed import Draw
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
OnError = Literal["stop", "skip"]


class Place(NamedTuple):
    """Where a draw reads: corpus, shard, item in the shard; `draw` is (corpus, epoch, index in the epoch's order)."""

    corpus: int
    shard: int
    item: int
    draw: Draw


class _Source:
    """Reads the samples at places; keeps count of what could not be read."""

    def __init__(self, corpora: Sequence[Corpus], unit: str | None, window: int | None, on_error: OnError, limit: int):
        if not corpora:
            raise WorkbenchError("there is no corpus to read: name at least one")
        self.items = [Items(corpus, unit, window) for corpus in corpora]
        self.on_error, self.limit = on_error, limit
        self.skipped: Counter[str] = Counter()

    def read(self, places: Sequence[Place]) -> list[Sample]:
        samples = []
        for corpus, shard, item, draw in places:
            try:
                sample = self.items[corpus].read(shard, item)
            except BadRecordError as error:
                self.skip(error, error.reason)
                continue
            sample["draw"] = draw
            samples.append(sample)
        return samples

    def wrong_sizes(self) -> list[str]:
        return [found for items in self.items for found in items.corpus.wrong_sizes()]

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """Count a sample that cannot be used. Raises `error` itself where samples are not to be skipped."""
        if self.on_error == "stop":
            raise error
        self.skipped[reason] += 1
        logger.warning("skipped a sample: %s", error)
        if self.skipped.total() > self.limit:
            counts = ", ".join(f"{n} x {reason}" for reason, n in self.skipped.most_common())
            raise WorkbenchError(
                f"more than {self.limit} samples could not be read ({counts}); the last: {error}. "
                "Run `workbench verify` on the corpus and mend it, or allow more (train.skip_limit)"
            ) from error


class Reader:
    """Endless reading for training.

    Args:
        corpora: (corpus, weight) pairs.
        seed: governs the order.
        lanes: micro-batches of one step over all ranks.
        micro_batch_size: samples of a micro-batch.
        unit: what the task's builder cuts records by: None, `text`, or a list field.
        window: width of text windows in characters.
        on_error: `stop` at a record that cannot be read or used, or `skip` it: the sample is missing from its
            micro-batch (which stays a pure function of number and lane) and counted in `skipped`, by reason.
        skip_limit: how many samples each process may skip before it stops.

    Raises:
        WorkbenchError: an empty corpus, a unit that a corpus lacks, or fewer items than lanes.
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
        on_error: OnError = "stop",
        skip_limit: int = 100,
    ) -> None:
        self._source = _Source([corpus for corpus, _ in corpora], unit, window, on_error, skip_limit)
        self._mixture = Mixture([weight for _, weight in corpora], seed=seed)
        self._orders = [Order(items.counts, seed=seed) for items in self._source.items]
        self.lanes, self.micro_batch_size = lanes, micro_batch_size
        for items in self._source.items:
            if items.total < lanes:
                raise WorkbenchError(
                    f"corpus {items.corpus.name!r} has {items.total} items, but global_batch_size / micro_batch_size "
                    f"asks for {lanes} lanes; use a larger micro_batch_size, a smaller global_batch_size or more data"
                )

    @property
    def skipped(self) -> Counter[str]:
        """Samples skipped by this process, by reason."""
        return self._source.skipped

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """A sample that was read turned out to be unusable.

        Raises:
            WorkbenchError: `error` itself unless `on_error` is `skip`, or that more than `skip_limit` were skipped.
        """
        self._source.skip(error, reason)

    def wrong_sizes(self) -> list[str]:
        """See `Corpus.wrong_sizes`, of all corpora."""
        return self._source.wrong_sizes()

    def items(self, corpus: int) -> int:
        """Items of an epoch of a corpus."""
        return self._source.items[corpus].total

    def micro_batch(self, number: int, lane: int) -> list[Sample]:
        """The samples of micro-batch `number` (from 0) of a lane.

        Raises:
            BadRecordError: a record cannot be read; names shard, key and reason.
        """
        return self._source.read(self.places(number, lane))

    def places(self, number: int, lane: int) -> list[Place]:
        """Where the samples of a micro-batch lie, without reading them."""
        if not 0 <= lane < self.lanes or number < 0:
            raise ValueError(f"micro-batch {number} of lane {lane}: there are lanes 0..{self.lanes - 1}")
        size = self.micro_batch_size
        corpora, numbers = self._mixture.draws(lane, number * size, size)
        places: list[Place | None] = [None] * size
        for corpus, order in enumerate(self._orders):
            slots = np.flatnonzero(corpora == corpus)
            start = lane * order.total // self.lanes
            width = (lane + 1) * order.total // self.lanes - start
            epochs, offsets = np.divmod(numbers[slots], width)
            for epoch in sorted({int(e) for e in epochs}):
                here = epochs == epoch
                index = start + offsets[here]
                shard, item = order.locate(epoch, index)
                for slot, s, i, x in zip(
                    slots[here].tolist(), shard.tolist(), item.tolist(), index.tolist(), strict=True
                ):
                    places[slot] = Place(corpus, s, i, (corpus, epoch, x))
        return [place for place in places if place is not None]

    def epochs(self, number: int) -> list[float]:
        """How many times each corpus has been read before micro-batch `number` of every lane."""
        draws = number * self.micro_batch_size * self.lanes
        shares = self._mixture.counts / self._mixture.length
        return [float(draws * share / order.total) for share, order in zip(shares, self._orders, strict=True)]

    @staticmethod
    def finite(
        corpora: Sequence[Corpus],
        *,
        lanes: int,
        micro_batch_size: int,
        unit: str | None = None,
        window: int | None = None,
        on_error: OnError = "stop",
        skip_limit: int = 100,
        max_steps: int | None = None,
    ) -> FinitePass:
        """One pass for evaluation; see `FinitePass`."""
        source = _Source(corpora, unit, window, on_error, skip_limit)
        return FinitePass(source, lanes=lanes, micro_batch_size=micro_batch_size, max_steps=max_steps)


class FinitePass:
    """Every item exactly once, in the corpora's own order. Made by `Reader.finite`.

    Micro-batch (number, lane) is the (number * lanes + lane)-th run of `micro_batch_size` items; the last one may be
    short, and lanes beyond it get [], so that every rank takes the same `steps`. Where the corpora have more runs than
    `max_steps` steps take, those that are read lie at equal distances over the whole of them, always the same ones.
    """

    def __init__(self, source: _Source, *, lanes: int, micro_batch_size: int, max_steps: int | None = None) -> None:
        self._source = source
        self.lanes, self.micro_batch_size = lanes, micro_batch_size
        self._ends = np.cumsum(np.concatenate([items.counts for items in source.items]))
        self._slots = [(c, shard) for c, items in enumerate(source.items) for shard in range(len(items.counts))]
        self._starts = np.cumsum([0, *(items.total for items in source.items)]).tolist()
        self._runs = -(-self.total // micro_batch_size)
        self._taken = self._runs if max_steps is None else min(self._runs, max_steps * lanes)

    @property
    def total(self) -> int:
        """Items of the corpora."""
        return int(self._ends[-1])

    @property
    def read(self) -> int:
        """Items of the pass: fewer than `total` where `max_steps` leaves some out."""
        size = self.micro_batch_size
        beyond = (self._run(self._taken - 1) + 1) * size - self.total  # what the corpora's last run is short of
        return self._taken * size - max(beyond, 0)

    @property
    def steps(self) -> int:
        """Micro-batches of each lane, the last of which may be short or empty."""
        return -(-self._taken // self.lanes)

    @property
    def skipped(self) -> Counter[str]:
        """Samples skipped by this process, by reason."""
        return self._source.skipped

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """As `Reader.skip`."""
        self._source.skip(error, reason)

    def wrong_sizes(self) -> list[str]:
        """As `Reader.wrong_sizes`."""
        return self._source.wrong_sizes()

    def micro_batch(self, number: int, lane: int) -> list[Sample]:
        """The samples of a micro-batch; [] beyond the end."""
        return self._source.read(self.places(number, lane))

    def places(self, number: int, lane: int) -> list[Place]:
        """Where the samples of a micro-batch lie, without reading them."""
        turn = number * self.lanes + lane
        if turn >= self._taken:
            return []
        first = self._run(turn) * self.micro_batch_size
        index = np.arange(first, min(first + self.micro_batch_size, self.total))
        places = []
        for x, slot in zip(index.tolist(), np.searchsorted(self._ends, index, side="right").tolist(), strict=True):
            corpus, shard = self._slots[slot]
            item = x - (int(self._ends[slot - 1]) if slot else 0)
            places.append(Place(corpus, shard, item, (corpus, 0, x - self._starts[corpus])))
        return places

    def _run(self, turn: int) -> int:
        """Which run of items is read in this turn: the middle one of the turn's equal share of all runs."""
        return (2 * turn + 1) * self._runs // (2 * self._taken)
