"""The ranks of a run: set-up from torchrun's environment, and the collectives that the trainer uses.

Everything also works on one process without a process group.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from workbench.core.errors import MachineError, WorkbenchError, message, system_error

T = TypeVar("T")
ROWS = "rows_sharded_parameters"
"""The method of a module that names its parameters of which every rank has other rows: they are not replicated."""
PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others. It is longer than any save, so that only a rank that hangs is given up."""


@dataclass(frozen=True)
class World:
    """This process among all: `rank` of `size`, and its device."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The element-wise sum over ranks, in place (gloo for a CPU tensor, nccl for a CUDA tensor)."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Every rank's small Python value, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def gather_on_main(self, value: Any) -> list[Any]:
        """Every rank's Python value, in rank order, on the main rank; elsewhere []."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.is_main else []
        dist.gather_object(value, values or None)
        return values

    def exchange(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """All-to-all: rows [sum(sent), ...], the first sent[0] for rank 0 and so on -> those for this rank, by rank
        [sum(received), ...]. No gradient flows through it."""
        if self.size == 1:
            return rows
        found = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(found, rows.contiguous(), received, sent)
        return found

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def from_main(self, make: Callable[[], T]) -> T:
        """The result of `make` on the main rank, on every rank. An error of `make` is raised on every rank, so that
        none waits.

        Raises:
            WorkbenchError: the error of `make` on the main rank, or its OSError as a message.
        """
        value: T | None = None
        refusal: WorkbenchError | None = None
        if self.is_main:
            try:
                value = make()
            except WorkbenchError as error:
                refusal = error
            except OSError as error:
                refusal = system_error(error)
        refused = self.gather((type(refusal), message(refusal)) if refusal is not None else None)[0]
        if refusal is not None:
            raise refusal
        if refused is not None:
            kind = MachineError if issubclass(refused[0], MachineError) else WorkbenchError
            raise kind(refused[1])
        return cast(T, self.gather(value)[0])

    def lanes(self, total: int) -> range:
        """The lanes of this rank: rank, rank + size, ...

        Raises:
            WorkbenchError: there are fewer lanes than ranks, which would leave a rank without work.
        """
        if total < self.size:
            raise WorkbenchError(
                f"train: global_batch_size / micro_batch_size = {total} micro-batches a step cannot feed {self.size} "
                "ranks; lower micro_batch_size, raise global_batch_size or start fewer ranks"
            )
        return range(self.rank, total, self.size)

    def gather_rows(self, mine: dict[int, Tensor], total: int) -> list[Tensor]:
        """Tensors [rows_i, ...] of numbered lanes, gathered over ranks: a list in lane order, detached.

        A rank may hold no lane; every rank gets the same list. Lanes without a tensor are left out.
        """
        about = self.gather({lane: (tuple(t.shape), str(t.dtype)) for lane, t in mine.items()})
        if self.size == 1:
            return [mine[lane].detach() for lane in sorted(mine)]
        shapes = {lane: shape for rank in about for lane, (shape, _) in rank.items()}
        names = {name for rank in about for _, name in rank.values()}
        if not names:
            return []
        if len(names) != 1 or len({shape[1:] for shape in shapes.values()}) != 1:
            raise ValueError(f"ranks hold embeddings of different kinds: {about}")
        dtype = getattr(torch, names.pop().removeprefix("torch."))
        width = next(iter(shapes.values()))[1:]
        rows = [sum(shape[0] for shape, _ in rank.values()) for rank in about]
        padded = torch.zeros((max(rows), *width), dtype=dtype, device=self.device)
        if mine:
            local = torch.cat([mine[lane].detach() for lane in sorted(mine)])
            padded[: len(local)] = local
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        found: dict[int, Tensor] = {}
        for rank, gathered in zip(about, everyone, strict=True):
            start = 0
            for lane in sorted(rank):
                found[lane] = gathered[start : start + shapes[lane][0]]
                start += shapes[lane][0]
        return [found[lane] for lane in range(total) if lane in found]


def data_parallel(module: nn.Module) -> DistributedDataParallel:
    """The module replicated over all ranks, with averaged gradients.

    Components (a layer that is skipped, a head with a branch) and data (a rank without a micro-batch) decide which
    parameters a step uses. So DDP searches for unused parameters in every step: a walk over the graph while a GPU is
    busy.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _Unadvised.apply(torch.zeros(1))
    own = {id(p) for each in module.modules() if hasattr(each, ROWS) for p in getattr(each, ROWS)()}
    if ignored := [name for name, p in module.named_parameters() if id(p) in own]:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)
    return DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=True)


class _Unadvised(torch.autograd.Function):
    """Triggers DDP's warning about the search for unused parameters once per process, with a toy module. DDP's C++
    writes it to the error stream of every rank; within an autograd function it becomes a Python warning, which is
    ignored."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        with torch.enable_grad():
            DistributedDataParallel(nn.Linear(1, 1), find_unused_parameters=True)(torch.ones(1, 1))
        return given.clone()


def world_from_environment() -> World:
    """The world described by torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK), or a single process.

    It joins the process group: nccl for CUDA tensors and gloo for CPU tensors, or gloo alone without a GPU.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if cuda:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise WorkbenchError(
                f"rank {rank} is local rank {local}, but this node has {torch.cuda.device_count()} GPU(s); start "
                "at most as many processes per node as it has GPUs"
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if size > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=PATIENCE)
    return World(rank, size, device)


@contextmanager
def distributed() -> Iterator[World]:
    """The world for the duration of a run; leaves the process group at the end.

    After an error it leaves without waiting for the other ranks: they detect the closed connection, and end too.
    """
    joined = dist.is_available() and dist.is_initialized()
    world = world_from_environment()
    leave = world.size > 1 and not joined
    try:
        yield world
    except BaseException:
        if leave and world.device.type == "cuda":
            distributed_c10d._abort_process_group()  # collectives under way would never end
        elif leave:
            dist.destroy_process_group()
        raise
    if leave:
        dist.destroy_process_group()
