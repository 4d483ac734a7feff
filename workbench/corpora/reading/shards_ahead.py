"""The shards that a process will read: the order is known, so remote ones are fetched before they are needed.

A process reads several lanes, each at a place of its own. What it needs is what all its lanes need.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.lanes import ContinuousLanes, ShuffledLanes
from workbench.corpora.reading.order import EpochOrder

Needed = set[tuple[int, int]]
"""Pairs (corpus, shard)."""
LOOK = 256
"""The number of micro-batches among which a finite pass looks for the next shard."""


class _LaneNeeds:
    """Tells the corpora which of their shards are needed now, and which soon, over all lanes."""

    def __init__(self, corpora: Sequence[Corpus]) -> None:
        self._corpora = corpora
        self.wanted = any(corpus.is_remote for corpus in corpora)
        self._at: dict[int, Hashable] = {}
        self._now: dict[int, Needed] = {}
        self._soon: dict[int, Needed] = {}

    def _report(self, lane: int, now: Needed, soon: Needed) -> None:
        self._now[lane], self._soon[lane] = now, soon
        everything_now = set().union(*self._now.values())
        everything_soon = set().union(*self._soon.values()) - everything_now
        for number, corpus in enumerate(self._corpora):
            corpus.expect(*(sorted(s for c, s in each if c == number) for each in (everything_now, everything_soon)))


class GroupsAhead(_LaneNeeds):
    """The groups of shards that the lanes of an endless reader are in, and the groups after them."""

    def __init__(
        self, corpora: Sequence[Corpus], orders: Sequence[EpochOrder], cut: ShuffledLanes | ContinuousLanes
    ) -> None:
        super().__init__(corpora)
        self._orders, self._cut = orders, cut

    def reach(self, number: int, lane: int) -> None:
        """A micro-batch is read next."""
        here = self._groups(number, lane)
        if frozenset(here) == self._at.get(lane):
            return
        self._at[lane] = frozenset(here)
        now = self._shards(here)
        soon: Needed = set()
        for (corpus, _, _), left in here.items():
            ahead = {each: n for each, n in self._groups(number + left, lane).items() if each[0] == corpus}
            soon |= self._shards(ahead)
        self._report(lane, now, soon - now)

    def _groups(self, number: int, lane: int) -> dict[tuple[int, int, int], int]:
        """(corpus, epoch, group) of a micro-batch -> the number of micro-batches after which the group has ended."""
        reads = self._cut.reads(number, lane)
        found: dict[tuple[int, int, int], int] = {}
        for corpus, epoch in set(zip(reads.corpus.tolist(), reads.epoch.tolist(), strict=True)):
            at = reads.at[(reads.corpus == corpus) & (reads.epoch == epoch)]
            group, ends = self._orders[corpus].groups(epoch, at)
            pace = 1 if reads.begins is not None else max(1, int((reads.corpus == corpus).sum()))
            for g, left in zip(group.tolist(), np.maximum(ends - at, 1).tolist(), strict=True):
                found[corpus, epoch, g] = max(found.get((corpus, epoch, g), 1), -(-left // pace))
        return found

    def _shards(self, groups: dict[tuple[int, int, int], int]) -> Needed:
        return {(c, shard) for c, epoch, group in groups for shard in self._orders[c].shards_of(epoch, group)}


class ShardsAhead(_LaneNeeds):
    """The shards that the lanes of a finite pass are in, and those after them.

    Args:
        shards_at: the shards of micro-batch (number, lane).
        steps: the micro-batches of a lane.
    """

    def __init__(self, corpora: Sequence[Corpus], shards_at: Callable[[int, int], Needed], steps: int) -> None:
        super().__init__(corpora)
        self._shards_at, self._steps = shards_at, steps

    def reach(self, number: int, lane: int) -> None:
        """See `GroupsAhead.reach`."""
        now = self._shards_at(number, lane)
        at = frozenset(now)
        if at == self._at.get(lane):
            return
        self._at[lane] = at
        soon: Needed = set()
        for later in range(number + 1, min(number + LOOK, self._steps)):
            soon = self._shards_at(later, lane) - now
            if soon:
                break
        self._report(lane, now, soon)
