"""What networks remember of texts that are read on, segment after segment (Transformer-XL, arXiv:1901.02860, section
3.2): for each lane of a task a KV cache for every network and view.

It is state of the run, and a function of the lane's micro-batches and the weights: kept by lane, so that ranks don't
matter, and saved with the weights. A step reads what the one before has left; only `commit` puts what it read itself in
that place, so that a forward may be run twice, or for nothing.
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
    """What a lane of a task has read up to its micro-batch `number`.

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
        before: what the lane's micro-batch before has left, if there was one.
        after: what this one leaves, to be filled.
    """

    def __init__(self, slots: list[Slot], before: LaneMemory | None, after: LaneMemory) -> None:
        self._before, self._after = before, after
        known = {} if before is None else {slot: n for n, slot in enumerate(before.slots)}
        self._goes_on = [known.get(slot.number) if slot.continues else None for slot in slots]
        self._last = {slot.number: n for n, slot in enumerate(slots)}

    def cache(self, where: ViewName) -> KVCache:
        """What the sequences continue from, in a network that reads a view."""
        known = None if self._before is None else self._before.caches.get(where)
        return KVCache("rows") if known is None else known.pick(self._goes_on).behind()

    def keep(self, where: ViewName, cache: KVCache, rows: int) -> None:
        """Remember the last rows of the cache that the network has now; of each slot that of the last sequence."""
        self._after.caches[where] = cache.pick([self._last[slot] for slot in self._after.slots]).cut(rows)


class Memory:
    """What the networks remember of the lanes of this process."""

    def __init__(self) -> None:
        self._known: dict[Lane, LaneMemory] = {}
        self._read: dict[Lane, LaneMemory] = {}

    def at(self, micro: MicroBatch) -> Recall:
        """The memory of a micro-batch of texts that are read on. What its lane read before another one is forgotten."""
        _, number, lane = micro.number
        before = self._known.get((micro.task, lane))
        if before is not None and before.number + 1 != number:
            before = None
        after = LaneMemory(number, sorted({slot.number for slot in micro.slots}))
        self._read[micro.task, lane] = after
        return Recall(micro.slots, before, after)

    def commit(self) -> None:
        """The micro-batches that were read are now those before."""
        self._known |= self._read
        self._read = {}

    def forget(self) -> None:
        """What was read is not remembered; as a lane's next micro-batch does not follow what is, it begins anew."""
        self._read = {}

    def copy(self) -> Memory:
        """One that may be written to while this one stays."""
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
        """What `state_dict` told of these lanes."""
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
