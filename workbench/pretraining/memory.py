"""The memory of networks for texts that are read on, segment after segment (Transformer-XL, arXiv:1901.02860, section
3.2): for each lane of a task a KV cache for every network and view.

It is state of the run, and a function of the lane's micro-batches and the weights. It is kept by lane, so that the
number of ranks doesn't matter, and saved with the weights. A step reads the memory of the step before. Only `commit`
replaces it with that of the step itself, so that a forward may be run twice, or without effect.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workbench.models.kv_cache import KVCache
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import Slot

Lane = tuple[str, int]
ViewName = tuple[str, str]


@dataclass(frozen=True)
class LaneMemory:
    """The memory of a lane of a task up to its micro-batch `number`.

    Attributes:
        slots: of the sequences of the caches.
        caches: by network and view.
    """

    number: int
    slots: list[int]
    caches: dict[ViewName, KVCache] = field(default_factory=dict)


class Recall:
    """The memory of one micro-batch on its way through the networks.

    Args:
        slots: of its sequences.
        before: the memory after the lane's preceding micro-batch, if there was one.
        after: the memory after this one, to be filled.
    """

    def __init__(self, slots: list[Slot], before: LaneMemory | None, after: LaneMemory) -> None:
        self._before, self._after = before, after
        known = {} if before is None else {slot: n for n, slot in enumerate(before.slots)}
        self._continued = [known.get(slot.number) if slot.continues else None for slot in slots]
        self._last = {slot.number: n for n, slot in enumerate(slots)}

    def cache(self, where: ViewName) -> KVCache:
        """The cache from which the sequences continue, in a network that reads a view."""
        known = None if self._before is None else self._before.caches.get(where)
        return KVCache("rows") if known is None else known.pick(self._continued).behind()

    def keep(self, where: ViewName, cache: KVCache, rows: int) -> None:
        """Remember the last rows of the network's current cache; for each slot those of its last sequence."""
        self._after.caches[where] = cache.pick([self._last[slot] for slot in self._after.slots]).cut(rows)


class Memory:
    """The memory of the networks for the lanes of this process."""

    def __init__(self) -> None:
        self._known: dict[Lane, LaneMemory] = {}
        self._read: dict[Lane, LaneMemory] = {}

    def at(self, micro: MicroBatch) -> Recall:
        """The memory of a micro-batch of texts that are read on. It holds the preceding micro-batch of its lane or
        nothing."""
        _, number, lane = micro.number
        before = self._known.get((micro.task, lane))
        if before is not None and before.number + 1 != number:
            before = None
        after = LaneMemory(number, sorted({slot.number for slot in micro.slots}))
        self._read[micro.task, lane] = after
        return Recall(micro.slots, before, after)

    def commit(self) -> None:
        """Make the memory of the micro-batches that were read the one that the next ones read."""
        self._known |= self._read
        self._read = {}

    def forget(self) -> None:
        """Discard the memory of the micro-batches that were read; a lane then begins anew, as its next micro-batch does
        not follow."""
        self._read = {}

    def copy(self) -> Memory:
        """A copy that may be written to while this one stays."""
        other = Memory()
        other._known = dict(self._known)
        return other

    def state_dict(self) -> dict[str, Tensor]:
        """All of it on the CPU, as `<task>/<lane>/...`."""
        state: dict[str, Tensor] = {}
        for (task, lane), known in self._known.items():
            if not known.caches:
                continue
            state[f"{task}/{lane}/number"] = torch.tensor(known.number)
            state[f"{task}/{lane}/slots"] = torch.tensor(known.slots)
            for (network, view), cache in known.caches.items():
                found = cache.state_dict().items()
                state |= {f"{task}/{lane}/{network}/{view}/{name}": tensor.cpu() for name, tensor in found}
        return state

    @classmethod
    def of(cls, state: dict[str, Tensor], lanes: Container[int], device: torch.device) -> Memory:
        """The memory of these lanes from a `state_dict`."""
        found: dict[Lane, dict[str, Tensor]] = {}
        for path, tensor in state.items():
            task, lane, name = path.split("/", 2)
            if int(lane) in lanes:
                found.setdefault((task, int(lane)), {})[name] = tensor
        memory = cls()
        for at, tensors in found.items():
            number, slots = int(tensors.pop("number")), tensors.pop("slots").tolist()
            memory._known[at] = LaneMemory(number, slots, _caches(tensors, device))
        return memory


def _caches(state: dict[str, Tensor], device: torch.device) -> dict[ViewName, KVCache]:
    """The caches whose tensors are `<network>/<view>/<name>`."""
    found: dict[ViewName, dict[str, Tensor]] = {}
    for path, tensor in state.items():
        network, view, name = path.split("/")
        found.setdefault((network, view), {})[name] = tensor.to(device)
    return {where: KVCache.of("rows", tensors) for where, tensors in found.items()}
