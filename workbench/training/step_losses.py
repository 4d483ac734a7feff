"""The losses of one step: what each of its micro-batches backpropagates, and what of them is summed and kept.

An additive objective backpropagates its share of weight * sum / global count. A step-wide one (`stepwide.py`) takes two
passes: `embed` embeds every micro-batch without gradient, which gives the gradients of its embeddings, and `total`
backpropagates those. Where every rank has one micro-batch, `total` does both in its only pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from workbench.processes.distributed import World
from workbench.sequences.batch import MicroBatch
from workbench.tasks.objective import Head, LossOutput, StepHead
from workbench.tasks.root import Root
from workbench.tasks.task import Task, labels
from workbench.training.micro_pass import MicroPass
from workbench.training.stepwide import Embedded, StepLoss, gather_embedded, step_loss, surrogate
from workbench.training.sums import DeviceSums, Label, zero

Outputs = dict[str, LossOutput | Embedded]


class StepLosses:
    """Follows the micro-batches of one step.

    Args:
        factors: of the sum of each objective's losses.
        lanes: micro-batches of a task in a step, over all ranks.
    """

    def __init__(
        self, root: Root, tasks: Mapping[str, Task], factors: Mapping[Label, float], lanes: int, world: World
    ) -> None:
        self.root, self.tasks, self.factors, self.lanes, self.world = root, tasks, factors, lanes, world
        self.sums = DeviceSums(labels(tasks), world.device)
        self.one_pass = lanes == world.size
        self.wide: dict[Label, StepLoss] = {}
        self.kept: dict[Label, dict[int, Embedded]] = {}
        self.learning: set[Label] = set()
        """Objectives of which something that is backpropagated depends on parameters that are trained."""

    def embed(self, run: MicroPass, step: int, task: str, micros: Mapping[int, MicroBatch | None]) -> None:
        """The first pass of a task's micro-batches of this rank, by lane; every rank takes part."""
        wide = self.tasks[task].step_wide
        mine: dict[str, dict[int, Embedded]] = {name: {} for name in wide}
        present = [(lane, micro) for lane, micro in micros.items() if micro is not None and wide]
        later = [*(micro for _, micro in present[1:]), None]
        for (lane, micro), following in zip(present, later, strict=False):
            # all names: the second pass draws the same random numbers only if it runs the same heads
            embed = partial(self.root, objectives=self.tasks[task].names, embed=wide)
            with torch.no_grad():
                outputs = run(embed, micro, step=step, task=task, lane=lane, following=following, again=True)
            for name in wide:
                mine[name][lane] = _embedded(outputs[name])
        for name, lanes in mine.items():
            self._gather((task, name), lanes)

    def total(self, task: str, lane: int, outputs: Outputs) -> Tensor:
        """What one micro-batch backpropagates, given what its heads made of it (nothing, where it is empty)."""
        total = torch.zeros((), device=self.world.device)
        with torch.autocast(self.world.device.type, enabled=False):
            for name in self.tasks[task].step_wide if self.one_pass else ():
                self._gather((task, name), {lane: _embedded(outputs[name])} if name in outputs else {})
            for name, output in outputs.items():
                total = total + self._share((task, name), lane, output)
        return total

    def finish(self) -> None:
        """After the last backward pass: the sums of step-wide losses, and the gradients of their heads."""
        for label, loss in self.wide.items():
            for output in loss.outputs:
                self.sums.add(label, output)
            for parameter, gradient in loss.of_head:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def kept_of(self, tasks: Iterable[str]) -> dict[str, Embedded]:
        """What the heads of these tasks keep of the whole step, over all ranks, by objective."""
        return {
            name: gather_embedded(self.kept.get((task, name), {}), self.lanes, self.world)[0]
            for task in tasks
            for name in self.tasks[task].names
            if self._head(name).keeps
        }

    def _gather(self, label: Label, mine: dict[int, Embedded]) -> None:
        head = self._head(label[1])
        assert isinstance(head, StepHead)
        if head.keeps:
            self.kept[label] = {lane: _only(head.keeps, embedded) for lane, embedded in mine.items()}
        self.wide[label] = step_loss(head, mine, self.lanes, self.factors[label], self.world)

    def _share(self, label: Label, lane: int, output: LossOutput | Embedded) -> Tensor:
        """What one objective of one micro-batch backpropagates (times the world's size, since DDP averages)."""
        if isinstance(output, dict):
            gradients = self.wide[label].gradients.get(lane, {})
            if self.wide[label].of_head or any(output[name].requires_grad for name in gradients):
                self.learning.add(label)
            return surrogate(output, gradients) * self.world.size if gradients else zero(self.world.device)
        self.sums.add(label, output)
        if output.loss.requires_grad:
            self.learning.add(label)
        if keeps := self._head(label[1]).keeps:
            self.kept.setdefault(label, {})[lane] = _only(keeps, output.made)
        return output.loss * (self.factors[label] * self.world.size)

    def _head(self, name: str) -> Head:
        head = self.root.heads[name]
        assert isinstance(head, Head)
        return head


def _only(names: tuple[str, ...], made: Mapping[str, Tensor]) -> Embedded:
    return {name: made[name].detach() for name in names}


def _embedded(output: LossOutput | Embedded) -> Embedded:
    assert isinstance(output, dict)
    return output
