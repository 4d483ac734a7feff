"""The ways to run one model on many ranks: replicated (DDP), or sharded (FSDP2, HSDP).

The step and the trainer know neither. A way places the model, runs a forward up to the scalar that is backpropagated,
and completes the gradients of a step.

Under shards every rank makes the same collectives in the same order. So a rank that has fewer micro-batches than others
runs a stand-in, whose result counts for nothing; what is skipped is decided by all ranks together (`agreed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workbench.components.build_context import named
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import ROWS, World, data_parallel, rows_sharded
from workbench.models.network import Network
from workbench.models.tensor_cut import is_spread, local
from workbench.parallel.lean_building import Filling, mapped_tensors, skeleton
from workbench.parallel.mesh import data_mesh, mesh_of
from workbench.parallel.sharded_table import trial_rows
from workbench.parallel.table_rows import TableSteps
from workbench.parallel.tensor_parallel import shard_tensors
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.memory import Memory
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import GlobalBatchHead
from workbench.pretraining.table_lookups import connect_tables
from workbench.pretraining.task import Task
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.batch import Batch, MicroBatch
from workbench.training.arithmetic import autocast_dtype
from workbench.training.nonfinite import dry

Total = Callable[[dict[str, Any]], Tensor]
"""A function of the heads' outputs by objective that returns a scalar."""
TRIED = 64
"""Micro-batches of a task that are read to find one with samples."""
STANDS_IN = -1
"""The split in the number of a stand-in."""


@dataclass(frozen=True)
class Work:
    """A micro-batch of this rank; `micro` is None where its lane had nothing (all samples dropped).

    One that `stands_in` is run for its collectives alone.
    """

    task: str
    lane: int
    micro: MicroBatch | None
    stands_in: bool = False


class ParallelModel(ABC):
    """A model on all ranks."""

    alone = True
    """Whether a rank may run the model while others do not."""

    def __init__(self, root: PretrainingModel, world: World) -> None:
        self.root, self.world = root, world
        self._tables = TableSteps(root, world)

    @property
    def whole_steps(self) -> bool:
        """Whether all micro-batches of a step must be there before the first one runs."""
        return not self.alone or bool(self._tables.tables)

    def begin(self, batches: MicroBatches) -> None:
        """Prepare for passes over these tasks. Every rank calls it, before any micro-batch is made."""
        connect_tables(batches.tasks.values(), self.root, self.world.device)

    def even(self, work: list[Work], lanes: int) -> list[Work]:
        """The micro-batches of a step or pass that this rank runs, given those of its lanes, task by task."""
        return work

    def before_step(self, work: list[Work], lanes: int) -> list[Work]:
        """`even`, and what the micro-batches read of other ranks is fetched. Every rank takes part.

        Raises:
            WorkbenchError: a micro-batch names a row that a table does not have.
        """
        even = self.even(work, lanes)
        self._tables.look_up(item.micro for item in even)
        return even

    @abstractmethod
    def forward(self, micro: MicroBatch | None, task: Task, total: Total, *, stands_in: bool = False) -> Tensor:
        """The scalar that is backpropagated: `total` of the outputs of the task's objectives (of none without a
        micro-batch or where it stands in); global-batch ones embed."""

    @abstractmethod
    def backward(self, last: bool) -> AbstractContextManager[Any]:
        """A block with the forward and backward of one micro-batch, the `last` one of a step or not."""

    def finish(self) -> None:
        """Complete the gradients of a step, after its last backward."""
        return

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors of a step that have a gradient and are no parameters."""
        return self._tables.leaves

    def reduce(self, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
        """Send the gradients of `leaves` to the ranks that update what was read. Every rank takes part.

        Returns:
            Those that this rank received: they count for the norm and are clipped.
        """
        self._tables.reduce(optimizer, step)
        return self._tables.row_gradients

    def after_update(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Update what no optimizer holds, after its step; without an optimizer forget the step or pass."""
        if optimizer is None:
            self._tables.release()
        else:
            self._tables.update(optimizer)

    def running(self, item: Work) -> AbstractContextManager[Any]:
        """A block that runs the model on a micro-batch; one that stands in leaves no trace."""
        return nullcontext()

    def trials(self) -> AbstractContextManager[Any]:
        """A block for passes that measure: they read nothing of other ranks."""
        return trial_rows()

    @abstractmethod
    def trial(self, micro: MicroBatch, dtype: torch.dtype | None, paused: AbstractContextManager[Any]) -> None:
        """Forward and backward of a micro-batch that leave no gradients; the backward runs within `paused`."""

    def reached(self, parameters: Sequence[nn.Parameter]) -> list[bool]:
        """Whether the gradient of each parameter is there and not 0 everywhere; the same on every rank."""
        return [p.grad is not None and bool(p.grad.any()) for p in parameters]

    def _trial_loss(self, micro: MicroBatch, dtype: torch.dtype | None) -> tuple[Tensor, dict[str, Any]]:
        with torch.autocast(self.world.device.type, dtype, enabled=dtype is not None):
            outputs: dict[str, Any] = self.root(micro, list(micro.counts))
        losses = [output.loss.float() for name, output in outputs.items() if name in micro.counts]
        return torch.stack(losses).sum() if losses else torch.zeros(()), outputs


class Pass(nn.Module):
    """The module that DDP wraps: one forward of the model, up to the scalar that is backpropagated.

    Only that scalar has a graph, since DDP waits for the gradient of every parameter that it can reach from the output:
    metrics, or an output that no loss uses, must not be among it. The scalar includes a zero that depends on a number
    of its own, so that a rank whose micro-batch has no labels, or no samples at all, still takes part in the reduction
    of gradients. No parameter of the model may do that: it would get a gradient, and move, in steps that do not use it.
    """

    def __init__(self, root: PretrainingModel, device: torch.device) -> None:
        super().__init__()
        self.root = root
        self.joined = nn.Parameter(torch.zeros((), device=device))

    def forward(self, micro: MicroBatch | None, task: Task, total: Total) -> Tensor:
        outputs = self.root(micro, task.names, embed=task.global_batch) if micro is not None else {}
        return total(outputs) + self.joined * 0


class ReplicatedModel(ParallelModel):
    """The whole model on every rank (DDP); on one rank the model itself."""

    def __init__(self, root: PretrainingModel, world: World) -> None:
        super().__init__(root.to(world.device), world)
        self.module: nn.Module = Pass(root, world.device)
        if world.size > 1:
            self.module = data_parallel(self.module)

    def forward(self, micro: MicroBatch | None, task: Task, total: Total, *, stands_in: bool = False) -> Tensor:
        scalar: Tensor = self.module(micro, task, total)
        return scalar

    def backward(self, last: bool) -> AbstractContextManager[Any]:
        if isinstance(self.module, DistributedDataParallel) and not last:
            return self.module.no_sync()
        return nullcontext()

    def trial(self, micro: MicroBatch, dtype: torch.dtype | None, paused: AbstractContextManager[Any]) -> None:
        trained = [p for p in self.root.parameters() if p.requires_grad]
        loss, _ = self._trial_loss(micro, dtype)
        if loss.requires_grad and trained:
            with paused:
                torch.autograd.grad(loss, trained, allow_unused=True)


class ShardedModel(ParallelModel):
    """A part of every parameter on each rank (FSDP2), within each node or over all of them.

    Parameters without a dimension or an element, and those of global-batch heads, which compute outside of the forward,
    stay whole on every rank, and so do moving averages of them; their gradients are averaged here.
    """

    alone = False

    def __init__(self, root: PretrainingModel, world: World, spec: TrainSpec) -> None:
        from torch.distributed.fsdp import CPUOffloadPolicy

        from workbench.parallel.sharding import Shards

        super().__init__(root, world)
        mesh = mesh_of(spec.parallel, world)
        if spec.parallel.tensor > 1:
            shard_tensors(root.to(world.device), mesh["tensor"])
        filling = Filling(root, world.device)  # it may replace parameters
        whole = whole_parameters(root)
        self.shards = Shards(
            root,
            [layer for network in _networks(root) for layer in network.layers],
            data_mesh(mesh),
            replicated=whole | rows_sharded(root),
            param_dtype=autocast_dtype(spec.precision, world.device),
            offload=CPUOffloadPolicy(world.device.type == "cuda") if spec.parallel.offload else None,
            filling=filling,
        )
        for parameter in whole:
            parameter.data = parameter.data.to(world.device)
        for module in root.modules():
            if hasattr(module, ROWS):
                module.to(world.device)
        self.trained = [p for p in root.parameters() if p.requires_grad]
        self.whole = [p for p in self.trained if p in whole]
        self.used: set[nn.Parameter] = set()
        self.stand_ins: Mapping[str, MicroBatch] = {}

    def begin(self, batches: MicroBatches) -> None:
        super().begin(batches)
        self.stand_ins = self.world.from_main(lambda: {task: _first_of(task, batches) for task in batches.tasks})

    def even(self, work: list[Work], lanes: int) -> list[Work]:
        mine = max(1, len(self.world.lanes(lanes)))
        even: list[Work] = []
        for first in range(0, len(work), mine):
            turn = work[first : first + mine]
            even += [item if item.micro is not None else self._stand_in(item.task) for item in turn]
            even += [self._stand_in(turn[0].task)] * (-(-lanes // self.world.size) - mine)
        return self.agreed(even)

    def _stand_in(self, task: str) -> Work:
        return Work(task, -1, self.stand_ins[task], stands_in=True)

    def agreed(self, work: list[Work]) -> list[Work]:
        """The same micro-batches, whose views share a stream where they do on every rank.

        One is changed only where it shares a stream and another rank's does not.
        """
        shared = [_shared(item.micro) for item in work if item.micro is not None]
        flags = [float(flag) for item in shared for flag in item.values()]
        if not flags:
            return work
        everywhere = iter(self.world.sum(torch.tensor(flags)).tolist())
        apart = [{key for key, here in item.items() if next(everywhere) < self.world.size and here} for item in shared]
        return [
            replace(item, micro=_with_apart(item.micro, keys)) if keys and item.micro is not None else item
            for item, keys in zip(work, apart, strict=True)
        ]

    def forward(self, micro: MicroBatch | None, task: Task, total: Total, *, stands_in: bool = False) -> Tensor:
        assert micro is not None
        with self.shards.training():
            outputs = self.root(micro, task.names, embed=task.global_batch)
        self._check_losses(outputs)
        joined = self.shards.joined(outputs)
        scalar = total({} if stands_in else outputs) + joined
        self.used |= self.shards.used(scalar)
        return scalar

    def _check_losses(self, outputs: Mapping[str, Any]) -> None:
        """
        Raises:
            WorkbenchError: a head computed with a shard of a layer's weights.
        """
        for name, output in outputs.items():
            if is_spread(getattr(output, "loss", None)):
                raise WorkbenchError(
                    f"{named(self.root.heads[name])}: it reads the weights of a network's layer, which are whole only "
                    "while the layer runs (train.parallel.shard). Read states or embedding tables, or set "
                    "train.parallel.shard=none"
                )

    @contextmanager
    def running(self, item: Work) -> Iterator[None]:
        with ExitStack() as stack:
            if item.stands_in:  # neither buffers change, nor the memory of earlier texts
                stack.enter_context(dry(self.root))
                stack.enter_context(self.root.remembering(None if self.root.remembered is None else Memory()))
            yield

    def backward(self, last: bool) -> AbstractContextManager[Any]:
        self.shards.last_backward(last)
        return nullcontext()

    def finish(self) -> None:
        """Average the gradients of whole parameters; None for parameters that no rank used."""
        used = self.world.sum(torch.tensor([float(p in self.used) for p in self.trained])).tolist()
        by_some = {p for p, times in zip(self.trained, used, strict=True) if times}
        self.used.clear()
        for parameter in self.trained:
            if parameter not in by_some:
                parameter.grad = None
        averaged = [p for p in self.whole if p in by_some]
        if not averaged:
            return
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in averaged])
        parts = self.world.sum(flat).div_(self.world.size).split([p.numel() for p in averaged])
        for parameter, part in zip(averaged, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()

    def trial(self, micro: MicroBatch, dtype: torch.dtype | None, paused: AbstractContextManager[Any]) -> None:
        self.shards.last_backward(True)
        with self.shards.training():
            loss, outputs = self._trial_loss(micro, dtype)
        self._check_losses(outputs)
        scalar = loss + self.shards.joined(outputs)
        with paused:
            scalar.backward()
        for parameter in self.trained:
            parameter.grad = None

    def reached(self, parameters: Sequence[nn.Parameter]) -> list[bool]:
        mine = [p.grad is not None and bool(local(p.grad).any()) for p in parameters]
        return [times > 0 for times in self.world.sum(torch.tensor(mine, dtype=torch.float64)).tolist()]


def parallel_of(root: PretrainingModel, spec: TrainSpec, world: World) -> ParallelModel:
    """The way of a recipe, with the model placed on the device.

    Raises:
        WorkbenchError: the ranks do not fit `train.parallel`.
    """
    return ShardedModel(root, world, spec) if is_sharded(spec, world) else ReplicatedModel(root, world)


def is_sharded(spec: TrainSpec, world: World) -> bool:
    """Whether no process has the whole model."""
    return spec.parallel.tensor > 1 or (world.size > 1 and spec.parallel.shard != "none")


def is_lean(spec: TrainSpec, world: World) -> bool:
    """Whether the main rank alone builds the model with its values."""
    return is_sharded(spec, world) and spec.parallel.tensor == 1


def built(make: Callable[[], PretrainingModel], spec: TrainSpec, world: World) -> PretrainingModel:
    """The model on the CPU; a sharded one has its values on the main rank alone, until it is placed."""
    if not is_lean(spec, world):
        return make()
    if not world.is_main:
        return skeleton(make)
    with mapped_tensors():
        return make()


def _networks(root: PretrainingModel) -> list[Network]:
    return [network for network in root.networks.values() if isinstance(network, Network)]


def whole_parameters(root: PretrainingModel) -> set[nn.Parameter]:
    """The parameters that every rank keeps whole under shards."""
    of_networks = {p for network in _networks(root) for p in network.parameters()}
    wide = [head for head in root.heads.values() if isinstance(head, GlobalBatchHead)]
    whole = {p for head in wide for p in head.parameters()} - of_networks
    whole |= {p for p in root.parameters() if p.ndim == 0 or not p.numel()}
    for average, followed, _ in root.following():
        pairs = zip(average.parameters(), followed.parameters(), strict=True)
        whole |= {own for own, other in pairs if other in whole}
    return whole


def _first_of(task: str, batches: MicroBatches) -> MicroBatch:
    """The first micro-batch of a task that has samples, with a number that no other one of a step has."""
    for number in range(TRIED):
        if (micro := batches.micro_batch(MicroBatchId(task, number, 0))) is not None:
            return replace(micro, number=(STANDS_IN, number, 0))
    raise WorkbenchError(
        f"tasks.{task}: none of the first {TRIED} micro-batches has a usable sample; look at the corpus with "
        "`workbench show RECIPE --batch`"
    )


SharedStream = tuple[str, str, str]
"""Two views of a micro-batch, and a stream that is one object in both."""


def _shared(micro: MicroBatch) -> dict[SharedStream, bool]:
    """For every two views and stream of both, whether they share it."""
    return {
        (one, other, stream): batch.streams[stream] is micro.views[other].streams[stream]
        for (one, batch), (other, _) in combinations(sorted(micro.views.items()), 2)
        for stream in sorted(batch.streams.keys() & micro.views[other].streams.keys())
    }


def _with_apart(micro: MicroBatch, keys: set[SharedStream]) -> MicroBatch:
    """The micro-batch, with streams of two views that are equal but no longer one object."""
    views: dict[str, Batch] = dict(micro.views)
    for _, other, stream in sorted(keys):
        batch = views[other]
        views[other] = replace(batch, streams={**batch.streams, stream: replace(batch.streams[stream])})
    return replace(micro, views=views)
