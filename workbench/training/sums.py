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
    """Loss and metric sums of a step, kept on the device until they are read at once."""

    def __init__(self, names: Mapping[Label, str], device: torch.device) -> None:
        self.names = names
        self.device = device
        self.losses = {label: zero(device) for label in names}
        self.metrics: dict[str, tuple[Tensor, Tensor]] = {}

    def add(self, label: Label, output: LossOutput) -> None:
        self.losses[label] = self.losses[label] + output.loss.detach().double()
        for metric, (value, count) in output.metrics.items():
            key = f"{self.names[label]}/{metric}"
            before = self.metrics.get(key, (zero(self.device), zero(self.device)))
            more = torch.as_tensor(count, dtype=torch.float64, device=self.device)
            added = torch.as_tensor(value, dtype=torch.float64, device=self.device).detach()
            self.metrics[key] = (before[0] + added, before[1] + more)

    def read(self, world: World, norm: Tensor) -> tuple[dict[Label, float], Sums, float]:
        """Losses over all ranks, this rank's metrics, the norm: one wait for the device."""
        losses = world.sum(torch.stack(list(self.losses.values())))
        rest = [value for pair in self.metrics.values() for value in pair]
        values = torch.cat([losses, torch.stack([*rest, norm.detach().double()])]).tolist()
        n = len(self.losses)
        pairs = values[n:-1]
        metrics = {key: (pairs[2 * i], pairs[2 * i + 1]) for i, key in enumerate(self.metrics)}
        return dict(zip(self.losses, values[:n], strict=True)), metrics, values[-1]


def zero(device: torch.device) -> Tensor:
    """0 in double precision."""
    return torch.zeros((), dtype=torch.float64, device=device)
