"""Two batches that differ in one stream share the layers that read only the others.

A layer declares the streams that it `reads` and those that it `changes`; one without a declaration may read and change
all. So it is known beforehand which layers a network need not run again on a batch that has some streams in common with
another one: those that read only unchanged streams. Their dropout is the same then.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

States = dict[str, Tensor]


class SharedStates:
    """The states that a run of a network leaves to a run on another batch.

    Args:
        layers: of the network.
        streams: those that the two batches have in common.
    """

    def __init__(self, layers: Iterable[nn.Module], streams: frozenset[str]) -> None:
        self.streams = streams
        self._plan = _plan(layers, streams)
        self._left: dict[int, States] = {}

    def skips(self, layer: int) -> bool:
        """Whether the other run leaves out this layer."""
        return self._plan[layer] is None

    def leave(self, layer: int, hidden: States) -> None:
        """Keep the states before a layer, or behind the last one, that the other run takes there."""
        if (streams := self._plan[layer]) is not None:
            self._left[layer] = {name: hidden[name] for name in streams if name in hidden}

    def take(self, layer: int, hidden: States) -> States:
        """The other run's states before a layer that it runs, or behind the last one."""
        streams = self._plan[layer] or frozenset()
        return {name: rows for name, rows in hidden.items() if name not in streams} | self._left[layer]


def _plan(layers: Iterable[nn.Module], streams: frozenset[str]) -> list[frozenset[str] | None]:
    """For each layer the streams that are still common before it, None where it is skipped; then those at the end."""
    plan: list[frozenset[str] | None] = []
    for layer in layers:
        reads, changes = streams_of(layer, "reads"), streams_of(layer, "changes")
        if reads and streams.issuperset(reads):
            plan.append(None)
            continue
        plan.append(streams)
        streams = frozenset() if changes is None else streams.difference(changes)
    return [*plan, streams]


def streams_of(layer: nn.Module, what: str) -> tuple[str, ...] | None:
    """The streams in a layer's `reads` or `changes`; None where it has no declaration, which means all."""
    said: tuple[str, ...] | None = getattr(layer, what, None)
    return said
