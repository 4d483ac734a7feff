"""Sums of losses and metrics with their counts: on the device while a step runs, as numbers between steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.processes.distributed import World
from workbench.tasks.objective import LossOutput

Label = tuple[str, str]
"""A task and an objective of it."""
Sums = dict[str, tuple[float, float]]
"""(sum, count) by the names of `workbench.tasks.task.labels`."""


def add_sums(into: Sums, more: Mapping[str, tuple[float, float]]) -> None:
    """Add (sum, count) pairs by name."""
    for name, (total, count) in more.items():
        before = into.get(name, (0.0, 0.0))
        into[name] = (before[0] + total, before[1] + count)


class DeviceSums:
    """Loss and metric sums of a step. What is on the device stays there until it is read at once; numbers of metrics
    stay on the host. `metrics` has the values and counts of each metric, one after the other."""

    def __init__(self, names: Mapping[Label, str], device: torch.device) -> None:
        self.names = names
        self.losses = dict(zip(names, torch.zeros(len(names), dtype=torch.float64, device=device), strict=True))
        self.metrics: dict[str, list[Tensor | float]] = {}

    def add(self, label: Label, output: LossOutput) -> None:
        self.losses[label] = self.losses[label] + output.loss.detach()
        for metric, (value, count) in output.metrics.items():
            self.metrics.setdefault(f"{self.names[label]}/{metric}", []).extend([_left(value), _left(count)])

    def read(self, world: World, norm: Tensor) -> tuple[dict[Label, float], Sums, float]:
        """Losses over all ranks, this rank's metrics, the norm: one wait for the device."""
        losses = world.sum(torch.stack(list(self.losses.values())))
        parts = [part for parts in self.metrics.values() for part in parts]
        there = [part for part in parts if isinstance(part, Tensor)]
        summed, read = _read(losses, [norm, *there])
        told = dict(zip(map(id, there), read[1:], strict=True))
        metrics: Sums = {}
        for name, of_metric in self.metrics.items():
            numbers = [told[id(part)] if isinstance(part, Tensor) else part for part in of_metric]
            for pair in zip(numbers[::2], numbers[1::2], strict=True):
                add_sums(metrics, {name: pair})
        return dict(zip(self.losses, summed, strict=True)), metrics, read[0]


def _left(number: Tensor | float) -> Tensor | float:
    """A number that stays where it is: on the device, or on the host."""
    return number.detach() if isinstance(number, Tensor) and number.device.type != "cpu" else float(number)


def _read(losses: Tensor, numbers: list[Tensor]) -> tuple[list[float], list[float]]:
    """The losses and the numbers, at once; those of a type are put together."""
    places: dict[torch.dtype, list[int]] = {}
    for place, number in enumerate(numbers):
        places.setdefault(number.dtype, []).append(place)
    stacked = [torch.stack([numbers[i].detach().reshape(()) for i in these]).double() for these in places.values()]
    values = torch.cat([losses, *stacked]).tolist()
    order = [place for these in places.values() for place in these]
    found = dict(zip(order, values[len(losses) :], strict=True))
    return values[: len(losses)], [found[place] for place in range(len(numbers))]


def zero(device: torch.device) -> Tensor:
    """0 in double precision."""
    return torch.zeros((), dtype=torch.float64, device=device)
