"""One optimiser step: counts, forward and backward of every micro-batch, reduction, clipping, the update.

The count of every objective is summed over all micro-batches and ranks before any forward, so each micro-batch
backpropagates its share of sum over objectives of weight * sum / global count. With dropout seeded from (seed,
step, task, lane) the result depends neither on the number of ranks nor on how lanes are spread over them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workbench.errors import WorkbenchError
from workbench.keyed import digest
from workbench.optimization.groups import hold_back
from workbench.processes.distributed import World
from workbench.recipe.spec import TrainSpec
from workbench.sequences.batch import MicroBatch
from workbench.tasks.objective import Head, LossOutput, StepHead
from workbench.tasks.root import Root
from workbench.tasks.task import Task, labels
from workbench.training.stepwide import Embedded, StepLoss, gather_embedded, step_loss, surrogate

T = TypeVar("T")
Label = tuple[str, str]
Sums = dict[str, tuple[float, float]]
Outputs = dict[str, LossOutput | Embedded]


@dataclass
class Work:
    """A micro-batch of this rank; `micro` is None where its lane had nothing (all samples dropped)."""

    task: str
    lane: int
    micro: MicroBatch | None


@dataclass
class StepResult:
    """What a step was: losses (sum, count) over all ranks, this rank's metrics, sizes over all ranks.

    `flags` are the sums over ranks of what was given to `Updater.run`.
    """

    losses: Sums
    metrics: Sums
    grad_norm: float
    rows: int
    samples: int
    flags: list[float] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)


class Pass(nn.Module):
    """What DDP wraps: one forward of the root, up to the one number that is backpropagated.

    That number and nothing else comes out of it with a graph, since DDP waits for the gradient of every parameter that
    it can reach from the output: metrics, or an output that no loss uses, must not be among it. To the number belongs
    a zero that depends on one small parameter, so that a rank whose micro-batch has no labels, or no samples at all,
    still takes part in the reduction of gradients.
    """

    def __init__(self, root: Root) -> None:
        super().__init__()
        self.root = root

    def forward(
        self, micro: MicroBatch | None, names: list[str], wide: list[str], total: Callable[[Outputs], Tensor]
    ) -> Tensor:
        """`total` of the outputs of these objectives (of none without a micro-batch); the step-wide ones embed."""
        smallest = min((p for p in self.root.parameters() if p.requires_grad), key=torch.Tensor.numel)
        outputs = self.root(micro, names, embed=wide) if micro is not None else {}
        return total(outputs) + smallest.sum() * 0


class Updater:
    """Runs optimiser steps of a root on this rank's micro-batches.

    Args:
        weights: the factor of each task's losses beside the objectives' own.
        precision: bfloat16 autocast, or None for float32.
    """

    def __init__(
        self,
        root: Root,
        optimizer: torch.optim.Optimizer,
        tasks: Mapping[str, Task],
        spec: TrainSpec,
        world: World,
        *,
        seed: int,
        weights: Mapping[str, float],
    ) -> None:
        self.root, self.optimizer, self.tasks, self.spec, self.world, self.seed = (
            root,
            optimizer,
            tasks,
            spec,
            world,
            seed,
        )
        self.labels = labels(tasks)
        self.autocast = autocast_dtype(spec.precision, world.device)
        self.trained = [p for p in root.parameters() if p.requires_grad]
        self.factor = {
            (task.name, placed.name): weights[task.name] * placed.weight
            for task in tasks.values()
            for placed in task.objectives
        }
        self.kept: dict[Label, dict[int, Embedded]] = {}
        self.step_wide = {(t.name, o.name) for t in tasks.values() for o in t.objectives if o.step_wide}
        self.one_pass = spec.lanes == world.size  # a micro-batch of a task on every rank
        self.forward: nn.Module = Pass(root)
        if world.size > 1:
            # Which parameters a step uses is up to parts (a layer that is skipped, a head with a branch) and to data (a
            # rank without a micro-batch), so DDP looks, every time: a walk over the graph, done while a GPU is busy.
            self.forward = DistributedDataParallel(self.forward, broadcast_buffers=False, find_unused_parameters=True)

    def run(self, step: int, work: list[Work], flags: list[float] | None = None) -> StepResult:
        """Update `step` (from 0).

        Raises:
            WorkbenchError: a loss or the gradient's norm is not finite; the weights are as before the step.
        """
        counts, rows, samples, agreed = self._agree(work, flags or [])
        factors = {label: self.factor[label] / count if count else 0.0 for label, count in counts.items()}
        self.optimizer.zero_grad(set_to_none=True)
        gathered = self._step_wide_losses(step, work, factors)
        sums = _Sums(self.labels, self.world.device)
        self._backward(step, work, factors, gathered, sums)
        for label, loss in gathered.items():
            for output in loss.outputs:
                sums.add(label, output)
            for parameter, gradient in loss.of_head:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        hold_back(self.optimizer, step)
        norm = self._clip()
        losses, metrics, grad_norm = sums.read(self.world, norm)
        self._check_finite(step, losses, counts, grad_norm)
        self.optimizer.step()
        self._after_step(step, work)
        named = {self.labels[label]: (losses[label], count) for label, count in counts.items() if count}
        dropped: dict[str, int] = {}
        for item in work:
            for reason, number in (item.micro.dropped if item.micro else {}).items():
                dropped[reason] = dropped.get(reason, 0) + number
        return StepResult(named, metrics, grad_norm, rows, samples, agreed, dropped)

    def _agree(self, work: list[Work], flags: list[float]) -> tuple[dict[Label, float], int, int, list[float]]:
        """Counts of every objective, rows, samples and flags, summed over micro-batches and ranks."""
        order = list(self.labels)
        values = torch.zeros(len(order) + 2 + len(flags), dtype=torch.float64)
        for item in work:
            if item.micro is None:
                continue
            for i, (task, name) in enumerate(order):
                if task == item.task:
                    values[i] += item.micro.counts[name]
            sizes = [(sum(s.rows for s in view.streams.values()), view.size) for view in item.micro.views.values()]
            values[len(order)] += sizes[0][0]
            values[len(order) + 1] += sizes[0][1]
        if flags:
            values[-len(flags) :] = torch.tensor(flags, dtype=torch.float64)
        total = self.world.sum(values).tolist()
        rows, samples = int(total[len(order)]), int(total[len(order) + 1])
        return dict(zip(order, total, strict=False)), rows, samples, total[len(order) + 2 :]

    def _wide(self, task: str) -> list[str]:
        return [name for name in self._names(task) if (task, name) in self.step_wide]

    def _names(self, task: str) -> list[str]:
        return [placed.name for placed in self.tasks[task].objectives]

    def _forward(self, model: Callable[[MicroBatch | None], T], step: int, item: Work) -> T:
        """A forward pass with the generators seeded for this micro-batch: twice the same for both passes."""
        seed_device(self.seed, step, item.task, item.lane)
        micro = item.micro.to(self.world.device) if item.micro is not None else None
        with torch.autocast(self.world.device.type, self.autocast, enabled=self.autocast is not None):
            return model(micro)

    def _step_wide_losses(self, step: int, work: list[Work], factors: dict[Label, float]) -> dict[Label, StepLoss]:
        """Embed all micro-batches without gradient, gather, and take the gradients of the embeddings.

        Where every rank has one micro-batch, that is left to its only forward pass (`_total`).
        """
        if not self.step_wide or self.one_pass:
            return {}
        mine: dict[Label, dict[int, Embedded]] = {}
        for task in dict.fromkeys(item.task for item in work):
            wide = self._wide(task)
            mine |= {(task, name): {} for name in wide}
            for item in work:
                if item.task == task and item.micro is not None and wide:
                    # all names: the second pass draws the same random numbers only if it runs the same heads
                    embed = partial(self.root, objectives=self._names(task), embed=wide)
                    with torch.no_grad():
                        outputs = self._forward(embed, step, item)
                    for name in wide:
                        mine[task, name][item.lane] = _embedded(outputs[name])
        return {label: self._step_loss(label, lanes, factors[label]) for label, lanes in mine.items()}

    def _step_loss(self, label: Label, mine: dict[int, Embedded], factor: float) -> StepLoss:
        head = self._head(label[1])
        assert isinstance(head, StepHead)
        if head.keeps:
            self.kept[label] = {lane: _only(head.keeps, embedded) for lane, embedded in mine.items()}
        return step_loss(head, mine, self.spec.lanes, factor, self.world)

    def _backward(
        self, step: int, work: list[Work], factors: dict[Label, float], gathered: dict[Label, StepLoss], sums: _Sums
    ) -> None:
        """Backpropagate every micro-batch; gradients are reduced over ranks during the last one.

        A rank without a micro-batch takes part where its pass gathers the embeddings of a step.
        """
        gathers = {task for task, _ in self.step_wide} if self.one_pass else set()
        present = [item for item in work if item.micro is not None or item.task in gathers] or work[-1:]
        for i, item in enumerate(present):
            hold = contextlib.nullcontext()
            if isinstance(self.forward, DistributedDataParallel) and i + 1 < len(present):
                hold = self.forward.no_sync()  # type: ignore[assignment]
            total = partial(self._total, item, factors, gathered, sums)
            names, wide = self._names(item.task), self._wide(item.task)
            with hold:
                self._forward(partial(self.forward, names=names, wide=wide, total=total), step, item).backward()

    def _total(
        self,
        item: Work,
        factors: dict[Label, float],
        gathered: dict[Label, StepLoss],
        sums: _Sums,
        outputs: Outputs,
    ) -> Tensor:
        """What one micro-batch backpropagates."""
        total = torch.zeros((), device=self.world.device)
        with torch.autocast(self.world.device.type, enabled=False):
            for name in self._wide(item.task) if self.one_pass else ():
                label = (item.task, name)
                mine = {item.lane: _embedded(outputs[name])} if name in outputs else {}
                gathered[label] = self._step_loss(label, mine, factors[label])
            for name, output in outputs.items():
                total = total + self._share((item.task, name), output, factors, gathered, sums, item.lane)
        return total

    def _share(
        self,
        label: Label,
        output: LossOutput | Embedded,
        factors: dict[Label, float],
        gathered: dict[Label, StepLoss],
        sums: _Sums,
        lane: int,
    ) -> Tensor:
        """What one objective of one micro-batch backpropagates (times the world's size, since DDP averages)."""
        if isinstance(output, dict):
            gradients = gathered[label].gradients.get(lane, {})
            return surrogate(output, gradients) * self.world.size if gradients else _zero(self.world.device)
        sums.add(label, output)
        if kept := self._head(label[1]).keeps:
            self.kept.setdefault(label, {})[lane] = _only(kept, output.made)
        return output.loss * (factors[label] * self.world.size)

    def _after_step(self, step: int, work: list[Work]) -> None:
        """Let buffers change, by what heads keep of the whole step."""
        kept: dict[str, Embedded] = {}
        present = dict.fromkeys(item.task for item in work)
        for task in present:
            for name in self._names(task):
                if self._head(name).keeps:
                    kept[name], _ = gather_embedded(self.kept.pop((task, name), {}), self.spec.lanes, self.world)
        self.root.after_step(step + 1, kept)
        if self.root.remembered is not None:
            self.root.remembered.commit()

    def _head(self, name: str) -> Head:
        head = self.root.heads[name]
        assert isinstance(head, Head)
        return head

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self.trained if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.spec.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.trained, self.spec.clip_norm, norm)
        return norm

    def _check_finite(self, step: int, losses: dict[Label, float], counts: dict[Label, float], norm: float) -> None:
        what = None
        for (task, name), value in losses.items():
            if counts[task, name] and not math.isfinite(value):
                what = f"the loss of objective {name!r} of task {task!r} is {value}"
                break
        if what is None and not math.isfinite(norm):
            active = ", ".join(f"{n!r} of task {t!r}" for (t, n), count in counts.items() if count)
            what = f"the gradient's norm is {norm} (objectives: {active})"
        if what:
            raise WorkbenchError(
                f"step {step + 1}: {what}. Stopped before the update; the checkpoints are from earlier steps. "
                "Try a lower train.lr, more train.lr_schedule.warmup_steps, a smaller train.clip_norm or "
                "train.precision=float32"
            )


def _only(names: tuple[str, ...], made: Mapping[str, Tensor]) -> Embedded:
    return {name: made[name].detach() for name in names}


def _embedded(output: LossOutput | Embedded) -> Embedded:
    assert isinstance(output, dict)
    return output


class _Sums:
    """Loss and metric sums of a step, kept on the device until they are read at once."""

    def __init__(self, names: Mapping[Label, str], device: torch.device) -> None:
        self.names = names
        self.device = device
        self.losses = {label: _zero(device) for label in names}
        self.metrics: dict[str, tuple[Tensor, Tensor]] = {}

    def add(self, label: Label, output: LossOutput) -> None:
        self.losses[label] = self.losses[label] + output.loss.detach().double()
        for metric, (value, count) in output.metrics.items():
            key = f"{self.names[label]}/{metric}"
            before = self.metrics.get(key, (_zero(self.device), _zero(self.device)))
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


def _zero(device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=device)


def seed_device(seed: int, step: int, task: str, lane: int) -> None:
    """Seed torch's generators (CPU and CUDA) for one micro-batch."""
    torch.manual_seed(digest(seed, "device", step, task, lane) % 2**63)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """bfloat16 where asked for or, on auto, where a CUDA device computes in it; None is float32.

    On a CPU without bfloat16 units autocast is many times slower than float32, so auto never uses it there.

    Raises:
        WorkbenchError: bfloat16 on a CUDA device that lacks it.
    """
    able = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bfloat16" and not able:
        raise WorkbenchError(f"train.precision = bfloat16: {torch.cuda.get_device_name(device)} lacks it; use float32")
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda" and able)
    return torch.bfloat16 if wanted else None
