"""The order of an epoch: shards shuffled, then items inside groups of shards; a function of (seed, epoch) alone.

In continuous order, records are shuffled instead of items, and a record's items stay neighbours. Any index of the order
is computed directly, so that nothing has to be replayed on resuming.

There are two orders. Order 1 permutes the items of a group of shards, which takes the time and memory of the group.
Order 2 does so up to 65,536 items, and computes single places of a larger group's shuffle. A run keeps the order that
it began with: the state of its checkpoints has the number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from workbench.core.keyed import generator, shuffled_places

GROUP_SHARDS = 8
"""The number of shards whose items are shuffled together."""
CACHED_BYTES = 256 << 20
PERMUTED = 1 << 16
"""The items up to which order 2 permutes a group: a millisecond."""

OrderNumber = Literal[1, 2]
"""How a large group is shuffled."""
NEWEST: OrderNumber = 2


class _Epoch(NamedTuple):
    shards: np.ndarray  # [shards] the shuffled shard numbers
    ends: np.ndarray  # [shards] items up to and including each shuffled shard
    group_ends: np.ndarray  # [groups] items up to and including each group


class EpochOrder:
    """The shuffled order of a corpus's items.

    Args:
        counts: [shards] items of each shard.
        seed: the run's seed.
        group_shards: number of shards that are shuffled together.
        runs: returns the number of items of each record of a shard, if a record's items stay together.
        number: of the order.
    """

    def __init__(
        self,
        counts: np.ndarray,
        *,
        seed: int,
        group_shards: int = GROUP_SHARDS,
        runs: Callable[[int], np.ndarray] | None = None,
        number: OrderNumber = NEWEST,
    ) -> None:
        self.counts = np.asarray(counts, np.int64)
        self.seed, self.group_shards, self.runs, self.number = seed, group_shards, runs, number
        self.total = int(self.counts.sum())
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._groups: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._cached_bytes = 0

    def locate(self, epoch: int, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shard and item within the shard at indices of an epoch's order; all arrays have the shape of `index`."""
        order = self._epoch(epoch)
        group = np.searchsorted(order.group_ends, index, side="right")
        shard = np.empty_like(index)
        item = np.empty_like(index)
        for g in {int(g) for g in group}:
            here = group == g
            base = int(order.group_ends[g - 1]) if g else 0
            place = base + self._places(epoch, g, int(order.group_ends[g]) - base, index[here] - base)
            slot = np.searchsorted(order.ends, place, side="right")
            found = order.shards[slot]
            shard[here] = found
            item[here] = place - (order.ends[slot] - self.counts[found])
        return shard, item

    def groups(self, epoch: int, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of the group at each index of an epoch's order, and the index at which that group ends."""
        ends = self._epoch(epoch).group_ends
        group = np.searchsorted(ends, index, side="right")
        return group, ends[group]

    def shards_of(self, epoch: int, group: int) -> list[int]:
        """The shards of a group."""
        first = group * self.group_shards
        return [int(shard) for shard in self._epoch(epoch).shards[first : first + self.group_shards]]

    def _epoch(self, epoch: int) -> _Epoch:
        known = self._epochs.get(epoch)
        if known is None:
            shards = generator(self.seed, "shards", epoch).permutation(len(self.counts))
            ends = np.cumsum(self.counts[shards])
            last = np.minimum(np.arange(self.group_shards, len(ends) + self.group_shards, self.group_shards), len(ends))
            known = self._epochs[epoch] = _Epoch(shards, ends, ends[last - 1])
            if len(self._epochs) > 4:
                self._epochs.popitem(last=False)
        return known

    def _places(self, epoch: int, group: int, size: int, index: np.ndarray) -> np.ndarray:
        """The items at indices of a group's order, numbered across its shards."""
        if self.number == 1 or self.runs is not None or size <= PERMUTED:
            return self._permutation(epoch, group, size)[index]
        return shuffled_places(index, size, self.seed, "items", epoch, group)

    def _permutation(self, epoch: int, group: int, size: int) -> np.ndarray:
        known = self._groups.get((epoch, group))
        if known is None:
            known = self._shuffled(epoch, group, size)
            if size < 1 << 31:
                known = known.astype(np.int32)
            self._groups[epoch, group] = known
            self._cached_bytes += known.nbytes
            while self._cached_bytes > CACHED_BYTES and len(self._groups) > 1:
                self._cached_bytes -= self._groups.popitem(last=False)[1].nbytes
        return known

    def _shuffled(self, epoch: int, group: int, size: int) -> np.ndarray:
        """The items of a group in their order, numbered across its shards."""
        shuffle = generator(self.seed, "items", epoch, group)
        if self.runs is None:
            return shuffle.permutation(size)
        shards = self._epoch(epoch).shards[group * self.group_shards : (group + 1) * self.group_shards]
        lengths = np.concatenate([self.runs(int(shard)) for shard in shards])
        order = shuffle.permutation(len(lengths))
        starts, shuffled = np.cumsum(lengths) - lengths, lengths[order]
        return np.arange(size) + np.repeat(starts[order] - (np.cumsum(shuffled) - shuffled), shuffled)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_epochs": OrderedDict(), "_groups": OrderedDict(), "_cached_bytes": 0}
