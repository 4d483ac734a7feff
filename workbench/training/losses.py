"""The losses of one step, in reading order.

`StepLosses`         the scalar that each micro-batch backpropagates, and the sums and outputs of the step
`MicroPass`          one micro-batch: its generators seeded, on the device, in the right precision
`DeviceSums`         sums of losses and metrics with their counts: on the device during a step, read once at its end
`global_batch_loss`  one loss over the embeddings of all micro-batches and ranks (contrastive)

An additive objective backpropagates its share of weight * sum / global count. A global-batch one takes two passes:
`StepLosses.embed` embeds every micro-batch without gradient, which yields the gradients of its embeddings, and
`StepLosses.total` backpropagates those. Where every rank has one micro-batch, `total` does both in its only pass.

The embeddings of a step are gathered on every rank. Each rank computes the terms of its own micro-batches, one after
another, against all of them, and their gradients with respect to all embeddings, which are summed over ranks; a
micro-batch then backpropagates the surrogate sum(embedding * gradient). So the loss depends neither on ranks nor on
accumulation (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
arXiv:2101.06983), and of the N x N comparisons only one micro-batch's rows are ever in memory.

Measured for N = 4096 pairs of 256 numbers (vision.itc, one core a rank): 303 MiB and 1.2 s on each of two ranks while
both compared all with all, 167 MiB and 0.65 s now; in micro-batches of 512 on one rank 303 MiB before and 78 MiB now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from workbench.components.calls import FirstMicroBatches, call
from workbench.core.keyed import digest
from workbench.core.processes.distributed import World
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import LOSS, GlobalBatchHead, Head, LossOutput
from workbench.pretraining.task import Task, labels
from workbench.sequences.batch import MicroBatch, tensors_of
from workbench.training.arithmetic import autocast_dtype
from workbench.training.embedding_gather import EmbeddedFields, EmbeddingGather
from workbench.training.parallel import Work

Outputs = dict[str, LossOutput | EmbeddedFields]

T = TypeVar("T")

Running = Callable[[Work], AbstractContextManager[Any]]

Label = tuple[str, str]
"""A task and an objective of it."""

Sums = dict[str, tuple[float, float]]
"""(sum, count) by the names of `workbench.pretraining.task.labels`."""


class StepLosses:
    """Collects the losses of the micro-batches of one step.

    Args:
        factors: of the sum of each objective's losses.
        lanes: micro-batches of a task in a step, over all ranks.
        gathers: what the ranks gather of each objective, kept from step to step.
    """

    def __init__(
        self,
        root: PretrainingModel,
        tasks: Mapping[str, Task],
        factors: Mapping[Label, float],
        lanes: int,
        world: World,
        gathers: Mapping[tuple[str, ...], EmbeddingGather],
    ) -> None:
        self.root, self.tasks, self.factors, self.world, self.gathers = root, tasks, factors, world, gathers
        self.sums = DeviceSums(labels(tasks), world.device)
        self.one_pass = lanes == world.size
        self.wide: dict[Label, GlobalBatchLoss] = {}
        self.kept: dict[Label, dict[int, EmbeddedFields]] = {}
        self.learning: set[Label] = set()
        """Objectives whose backpropagated loss depends on trained parameters."""

    def embed(
        self, run: MicroPass, step: int, work: list[Work], first: FirstMicroBatches, running: Running = nullcontext
    ) -> None:
        """The first pass of this rank's micro-batches of one task; every rank takes part. Each runs in a block."""
        task = work[0].task
        wide = self.tasks[task].global_batch
        mine: dict[str, dict[int, EmbeddedFields]] = {name: {} for name in wide}
        present = [item for item in work if item.micro is not None and wide]
        later = [*(item.micro for item in present[1:]), None]
        for item, following in zip(present, later, strict=False):
            # all names: the second pass draws the same random numbers only if it runs the same heads
            embed = partial(self.root, objectives=self.tasks[task].names, embed=wide)
            again = partial(run, embed, item.micro, step=step, task=task, lane=item.lane, again=True)
            passed = partial(again, following=following)
            with torch.no_grad(), running(item), first.checked(task, passed):
                outputs = passed()
            for name in wide if not item.stands_in else ():
                mine[name][item.lane] = _embedded(outputs[name])
        for name, lanes in mine.items():
            self._gather((task, name), lanes)

    def total(self, task: str, lane: int, outputs: Outputs) -> Tensor:
        """The scalar that one micro-batch backpropagates, given the outputs of its heads (None, where it is empty)."""
        total = torch.zeros((), device=self.world.device)
        with torch.autocast(self.world.device.type, enabled=False):
            for name in self.tasks[task].global_batch if self.one_pass else ():
                self._gather((task, name), {lane: _embedded(outputs[name])} if name in outputs else {})
            for name, output in outputs.items():
                total = total + self._share((task, name), lane, output)
        return total

    def finish(self) -> None:
        """After the last backward pass: the sums of global-batch losses, and the gradients of their heads."""
        for label, loss in self.wide.items():
            for output in loss.outputs:
                self.sums.add(label, output)
            for parameter, gradient in loss.of_head:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def kept_of(self, tasks: Iterable[str]) -> dict[str, EmbeddedFields]:
        """The outputs that the heads of these tasks gather over the whole step and all ranks, by objective."""
        return {
            name: self.gathers[task, name, "kept"](self.kept.get((task, name), {}))[0]
            for task in tasks
            for name in self.tasks[task].names
            if self._head(name).keeps
        }

    def _gather(self, label: Label, mine: dict[int, EmbeddedFields]) -> None:
        head = self._head(label[1])
        assert isinstance(head, GlobalBatchHead)
        if head.keeps:
            self.kept[label] = {lane: _only(head.keeps, embedded) for lane, embedded in mine.items()}
        self.wide[label] = global_batch_loss(head, mine, self.gathers[label], self.factors[label])

    def _share(self, label: Label, lane: int, output: LossOutput | EmbeddedFields) -> Tensor:
        """The scalar that one objective of one micro-batch backpropagates (times the world's size, since DDP
        averages)."""
        if isinstance(output, dict):
            gradients = self.wide[label].gradients.get(lane, {})
            if self.wide[label].of_head or any(output[name].requires_grad for name in gradients):
                self.learning.add(label)
            return surrogate(output, gradients) * self.world.size if gradients else zero(self.world.device)
        self.sums.add(label, output)
        if output.loss.requires_grad:
            self.learning.add(label)
        if keeps := self._head(label[1]).keeps:
            self.kept.setdefault(label, {})[lane] = _only(keeps, output.outputs)
        return output.loss * (self.factors[label] * self.world.size)

    def _head(self, name: str) -> Head:
        head = self.root.heads[name]
        assert isinstance(head, Head)
        return head


def _only(names: tuple[str, ...], made: Mapping[str, Tensor]) -> EmbeddedFields:
    return {name: made[name].detach() for name in names}


def _embedded(output: LossOutput | EmbeddedFields) -> EmbeddedFields:
    assert isinstance(output, dict)
    return output


class MicroPass:
    """Runs a model on micro-batches, and copies the next one to the device meanwhile.

    Dropout is seeded from (seed, step, task, lane). So a pass is the same wherever it runs: it depends neither on the
    number of ranks nor on the distribution of lanes over them.

    Args:
        precision: `train.precision`.
        seed: the recipe's.
    """

    def __init__(self, precision: str, device: torch.device, seed: int) -> None:
        self.autocast = autocast_dtype(precision, device)
        self.device, self.seed = device, seed
        self.copies = Copies(device)
        self.timed: Callable[[], AbstractContextManager[None]] = nullcontext
        """Measures each pass; by default none."""

    def __call__(
        self,
        model: Callable[[MicroBatch | None], T],
        micro: MicroBatch | None,
        *,
        step: int,
        task: str,
        lane: int,
        following: MicroBatch | None = None,
        again: bool = False,
    ) -> T:
        """The model's outputs for a micro-batch; the same place (step, task, lane) repeats them.

        Args:
            following: the micro-batch of the next pass.
            again: whether this one will come again, so that its copy stays on the device.
        """
        # torch.manual_seed seeds every kind of device, and formats a traceback for each that is not there: 0.24 ms
        seeded = torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
        seeded(digest(self.seed, "device", step, task, lane) % 2**63)
        moved = None if micro is None else self.copies.take(micro, again=again)
        if following is not None:
            self.copies.begin(following)
        with self.timed(), torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            return model(moved)


class Copies:
    """Micro-batches on their way to the device. On CUDA they are copied on a stream of their own, while another one is
    computed; the device waits for the copy that is used, not the host.

    A micro-batch is known by its task and number, whichever of its views share a stream by then.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._under_way: dict[tuple[str, tuple[int, ...]], tuple[list[Tensor], list[Tensor], torch.cuda.Event]] = {}

    def begin(self, micro: MicroBatch) -> None:
        """Begin to copy a micro-batch that will be taken."""
        if self._stream is None or micro.place in self._under_way:
            return
        with torch.cuda.stream(self._stream):
            moved = micro.to(self.device)
            copied = tensors_of(micro.map), tensors_of(moved.map)
            self._under_way[micro.place] = *copied, self._stream.record_event()

    def take(self, micro: MicroBatch, *, again: bool = False) -> MicroBatch:
        """The micro-batch on the device; its copy stays there where it is taken `again`."""
        if self._stream is None:
            return micro.to(self.device)
        self.begin(micro)
        here, there, copied = self._under_way[micro.place] if again else self._under_way.pop(micro.place)
        reader = torch.cuda.current_stream(self.device)
        reader.wait_event(copied)
        for tensor in there:
            tensor.record_stream(reader)  # its memory is the copying stream's, and not free before it was read
        moved = dict(zip(map(id, here), there, strict=True))
        return replace(micro.map(lambda tensor: moved[id(tensor)]), buffer=None)

    def forget(self, following: MicroBatch | None = None) -> None:
        """At a step's end: let go of every copy that was not taken, but that of the `following` micro-batch."""
        kept = None if following is None else following.place
        self._under_way = {place: copy for place, copy in self._under_way.items() if place == kept}


def add_sums(into: Sums, more: Mapping[str, tuple[float, float]]) -> None:
    """Add (sum, count) pairs by name."""
    for name, (total, count) in more.items():
        before = into.get(name, (0.0, 0.0))
        into[name] = (before[0] + total, before[1] + count)


class DeviceSums:
    """Loss and metric sums of a step. Values on the device stay there until all are read at once; numbers of metrics
    stay on the host. `metrics` has the values and counts of each metric, one after the other."""

    def __init__(self, names: Mapping[Label, str], device: torch.device) -> None:
        self.names, self.device = names, device
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
        numbers_by_id = dict(zip(map(id, there), read[1:], strict=True))
        metrics: Sums = {}
        for name, of_metric in self.metrics.items():
            numbers = [numbers_by_id[id(part)] if isinstance(part, Tensor) else part for part in of_metric]
            for pair in zip(numbers[::2], numbers[1::2], strict=True):
                add_sums(metrics, {name: pair})
        return dict(zip(self.losses, summed, strict=True)), metrics, read[0]


def _left(number: Tensor | float) -> Tensor | float:
    """A number that stays where it is: on the device, or on the host."""
    return number.detach() if isinstance(number, Tensor) and number.device.type != "cpu" else float(number)


def _read(losses: Tensor, numbers: list[Tensor]) -> tuple[list[float], list[float]]:
    """The losses and the numbers, read at once; those of one dtype are joined."""
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


@dataclass
class GlobalBatchLoss:
    """The share of a rank in the loss of a step.

    `outputs` are the terms of its micro-batches; `gradients[lane]` those of its embeddings with respect to the whole
    loss; `of_head` those of the head's own parameters (a logit scale), the same on every rank.
    """

    outputs: list[LossOutput]
    gradients: dict[int, EmbeddedFields] = field(default_factory=dict)
    of_head: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)


def global_batch_loss(
    head: GlobalBatchHead, mine: Mapping[int, EmbeddedFields], gather: EmbeddingGather, factor: float
) -> GlobalBatchLoss:
    """The terms of this rank's embeddings among those of the step, and the gradients of the whole loss times `factor`.

    Every rank takes part, also one that holds no lane.

    Args:
        mine: this rank's embeddings by lane; no gradient flows into them.
    """
    whole, rows = gather(mine)
    leaves = {name: t.float().requires_grad_() for name, t in whole.items() if t.is_floating_point()}
    parameters = [p for p in head.parameters() if p.requires_grad]
    inputs = [*leaves.values(), *parameters]
    sums: list[Tensor | None] = [None] * len(inputs)
    outputs = []
    for lane in sorted(mine):
        with torch.enable_grad():
            output = loss_of(head, {**whole, **leaves}, rows[lane])
        if output.loss.requires_grad:
            found = torch.autograd.grad(output.loss * factor, inputs, allow_unused=True)
            sums = [_sum_of(before, more) for before, more in zip(sums, found, strict=True)]
        outputs.append(_detached(output))
    sums = _over_ranks(sums, inputs, gather.world)
    gradients: dict[int, EmbeddedFields] = {
        lane: {name: g[rows[lane]] for name, g in zip(leaves, sums, strict=False) if g is not None} for lane in mine
    }
    of_head = [(p, g) for p, g in zip(parameters, sums[len(leaves) :], strict=True) if g is not None]
    return GlobalBatchLoss(outputs, gradients, of_head)


def loss_of(head: GlobalBatchHead, embedded: EmbeddedFields, own: slice) -> LossOutput:
    """The terms of the rows `own` among the embeddings of a step, in float32."""
    whole = {name: t.float() if t.is_floating_point() else t for name, t in embedded.items()}
    output: LossOutput = call(head, "loss", LOSS, whole, own)
    return output


def surrogate(embedded: EmbeddedFields, gradients: EmbeddedFields) -> Tensor:
    """A scalar whose gradient with respect to the embeddings is `gradients`."""
    return torch.stack([(embedded[name].float() * gradient).sum() for name, gradient in gradients.items()]).sum()


def _sum_of(before: Tensor | None, more: Tensor | None) -> Tensor | None:
    # autograd may return one tensor for two inputs, or one without memory of its own: no sum is in place
    return more if before is None else before if more is None else before + more


def _over_ranks(sums: list[Tensor | None], inputs: list[Tensor], world: World) -> list[Tensor | None]:
    """Gradients summed over ranks; None for what no rank used."""
    if world.size == 1:
        return sums
    used = world.sum(torch.tensor([float(gradient is not None) for gradient in sums])).tolist()
    return [
        world.sum(torch.zeros_like(leaf) if gradient is None else _own(gradient)) if times else None
        for times, gradient, leaf in zip(used, sums, inputs, strict=True)
    ]


def _own(gradient: Tensor) -> Tensor:
    return gradient.clone(memory_format=torch.contiguous_format)


def _detached(output: LossOutput) -> LossOutput:
    metrics = {name: (_without_graph(s), _without_graph(c)) for name, (s, c) in output.metrics.items()}
    return LossOutput(output.loss.detach(), metrics)


def _without_graph(value: Tensor | float) -> Tensor | float:
    return value.detach() if isinstance(value, Tensor) else value
