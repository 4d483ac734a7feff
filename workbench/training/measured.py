"""What a held-out pass measures as a whole: tensors of its heads, gathered over micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.errors import unknown
from workbench.processes.distributed import World
from workbench.tasks.task import Task, labels
from workbench.training.sums import Label


class Measured:
    """Keeps what each objective's `measured` names until the pass is over."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.objectives = {(task.name, p.name): p.objective for task in tasks.values() for p in task.objectives}
        self.names = labels(tasks)
        self.kept: dict[Label, dict[tuple[int, int], dict[str, Tensor]]] = {}

    def add(self, label: Label, place: tuple[int, int], made: Mapping[str, Tensor]) -> None:
        """
        Args:
            place: number and lane of the micro-batch; what is gathered comes in their order.
            made: what the head made of it (`LossOutput.made`; of a step-wide head what it embedded).

        Raises:
            WorkbenchError: the head doesn't hand on what the objective measures.
        """
        wanted = self.objectives[label].measured
        missing = [name for name in wanted if name not in made]
        if missing:
            by = "embedded by its step-wide head" if self.objectives[label].step_wide else "made by its head"
            raise unknown("tensor", missing[0], made, f"measured by {self.names[label]}, {by}")
        if wanted:
            self.kept.setdefault(label, {})[place] = {name: made[name].detach().cpu() for name in wanted}

    def metrics(self, world: World) -> dict[str, float]:
        """`<objective>/<metric>` of `Objective.measure`; the same on every rank."""
        found: dict[str, float] = {}
        whole: dict[Label, dict[tuple[int, int], dict[str, Tensor]]] = {}
        for kept in world.gather(self.kept):
            for label, parts in kept.items():
                whole.setdefault(label, {}).update(parts)
        for label, parts in whole.items():
            ordered = [parts[place] for place in sorted(parts)]
            made = {name: torch.cat([part[name] for part in ordered]) for name in ordered[0]}
            if any(map(len, made.values())):
                measured = self.objectives[label].measure(made)
                found |= {f"{self.names[label]}/{metric}": value for metric, value in measured.items()}
        return found
