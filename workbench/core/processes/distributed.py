"""The ranks of a run: set-up from the launcher's environment, and the collectives that the trainer uses.

Everything also works on one process without a process group.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from workbench.core.errors import MachineError, WorkbenchError, message, system_error
from workbench.core.processes.launch import Launch, launch_of
from workbench.core.processes.membership import LostRanksError, Membership, ends_at_once

S = TypeVar("S")
T = TypeVar("T")
ROWS = "rows_sharded_parameters"
"""The method of a module that names its parameters of which every rank has other rows: they are not replicated."""
SMALL = 4096
"""Numbers that are summed by pairs of ranks: the counts and flags of a step."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class World:
    """This process among all: `rank` of `size`, its device, and how it notices the others."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    membership: Membership | None = field(default=None, compare=False)
    group: Any = None
    """The process group of these ranks; None for all processes."""

    @property
    def name(self) -> str:
        """The rank and its host, for messages."""
        return f"rank {self.rank} ({socket.gethostname()})"

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def devices(self) -> int:
        """The processes that compute together."""
        return self.size

    def agree(self, values: Tensor) -> Tensor:
        """As `sum`, with the same result on every process."""
        return self.sum(values)

    def sum(self, values: Tensor) -> Tensor:
        """The element-wise sum over ranks, in place (gloo for a CPU tensor, nccl for a CUDA tensor)."""
        if self.size == 1:
            return values
        self._arrive()
        if self.group is None and values.device.type == "cpu" and self.size > 2 and values.numel() <= SMALL:
            self.sum_in_pairs(values)
        else:
            dist.all_reduce(values, group=self.group)
        return values

    def sum_in_pairs(self, values: Tensor) -> None:
        """The sum of a few numbers by recursive doubling: log2(ranks) messages one after the other, to as many peers.

        gloo's ring sends 2 (ranks - 1) messages one after the other. The sum has the same bits on every rank. Ranks
        beyond a power of two first add their values to those of another rank, and get the sum in the end.
        """
        power = 1 << (self.size.bit_length() - 1)
        if self.rank >= power:
            dist.send(values, self.rank - power)
            dist.recv(values, self.rank - power)
            return
        partner = self.rank + power if self.rank + power < self.size else None
        received = torch.empty_like(values)
        if partner is not None:
            dist.recv(received, partner)
            values += received
        for bit in range(power.bit_length() - 1):
            peer = self.rank ^ (1 << bit)
            sent = dist.isend(values, peer)
            dist.recv(received, peer)
            if sent is not None:
                sent.wait()
            values += received
        if partner is not None:
            dist.send(values, partner)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's small Python value, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        self._arrive()
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather_on_main(self, value: Any) -> list[Any]:
        """Every rank's Python value, in rank order, on the main rank; elsewhere []."""
        if self.size == 1:
            return [value]
        self._arrive()
        values: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, values or None, group=self.group, group_dst=0)
        return values if self.is_main else []

    def exchange(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """All-to-all: rows [sum(sent), ...], the first sent[0] for rank 0 and so on -> those for this rank, by rank
        [sum(received), ...]. No gradient flows through it."""
        if self.size == 1:
            return rows
        self._arrive()
        found = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(found, rows.contiguous(), received, sent, group=self.group)
        return found

    def barrier(self) -> None:
        if self.size > 1:
            self._arrive()
            dist.barrier()

    def from_main(self, make: Callable[[], T]) -> T:
        """The result of `make` on the main rank, on every rank. An error of `make` is raised on every rank, so that
        none waits.

        Raises:
            WorkbenchError: the error of `make` on the main rank, or its OSError as a message.
        """
        value, refusal = _attempt(make) if self.is_main else (None, None)
        refused, value = self._broadcast(_in_words(refusal), value)
        if refusal is not None:
            raise refusal
        if refused is not None:
            raise _refusal(*refused)
        return cast(T, value)

    def from_shares(self, total: int, make: Callable[[range], T], join: Callable[[list[T]], S]) -> S:
        """What the main rank joins from the shares of a work that all ranks make, on every rank.

        Args:
            total: the number of pieces of the work; each rank makes a run of them.
            make: returns the share of a run of pieces; an error of it is raised on every rank.
            join: puts the shares together, in the order of the pieces.

        Raises:
            WorkbenchError: the error of a rank.
        """
        own = range(self.rank * total // self.size, (self.rank + 1) * total // self.size)
        share, refusal = _attempt(lambda: make(own))
        ranks = self.gather_on_main((_in_words(refusal), share))

        def joined() -> S:
            for refused, _ in ranks:
                if refused is not None:
                    raise _refusal(*refused)
            return join([share for _, share in ranks])

        return self.from_main(joined)

    def _broadcast(self, *values: Any) -> Any:
        """The main rank's Python values, on every rank."""
        if self.size == 1:
            return values
        self._arrive()
        sent = [*values]
        dist.broadcast_object_list(sent)
        return sent

    def _arrive(self) -> None:
        """Note that this rank comes to a collective operation, for the message when another one does not come."""
        if self.membership is not None:
            self.membership.calls += 1

    def missing(self) -> str:
        """The ranks for which a collective operation has failed; "" if unknown (`Membership.missing`)."""
        return "" if self.membership is None else self.membership.missing()

    def note_step(self, step: int) -> None:
        """Note the number of finished steps, for the message when a rank is lost."""
        if self.membership is not None:
            self.membership.step = step

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

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Tensors of one shape, of all ranks [ranks, ...]. No gradient flows through it."""
        self._arrive()
        found = rows.new_empty(self.size, *rows.shape)
        dist.all_gather([*found.unbind()], rows, group=self.group)
        return found


@dataclass(frozen=True)
class DataWorld(World):
    """The ranks that read different micro-batches, where each of them is several processes (tensor parallelism).

    `rank` and `size` count these ranks. Processes with the same place in their rank exchange numbers with each other;
    only the first process of all is the main one.
    """

    whole: World = field(default_factory=World)
    together: Any = None
    """The process group of the processes of this rank."""

    @property
    def is_main(self) -> bool:
        return self.whole.is_main

    @property
    def devices(self) -> int:
        return self.whole.size

    def agree(self, values: Tensor) -> Tensor:
        """A flag of one process counts for its rank."""
        self._arrive()
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self.together)
        return self.sum(values)

    def barrier(self) -> None:
        self.whole.barrier()

    def from_main(self, make: Callable[[], T]) -> T:
        return self.whole.from_main(make)

    def from_shares(self, total: int, make: Callable[[range], T], join: Callable[[list[T]], S]) -> S:
        return self.whole.from_shares(total, make, join)


def _attempt(make: Callable[[], T]) -> tuple[T | None, WorkbenchError | None]:
    """The result of `make`, or its error as a message."""
    try:
        return make(), None
    except WorkbenchError as error:
        return None, error
    except OSError as error:
        return None, system_error(error)


def _in_words(refusal: WorkbenchError | None) -> tuple[type[WorkbenchError], str] | None:
    return None if refusal is None else (type(refusal), message(refusal))


def _refusal(found: type[WorkbenchError], text: str) -> WorkbenchError:
    """The error of another rank."""
    return (MachineError if issubclass(found, MachineError) else WorkbenchError)(text)


def data_world(world: World, tensor: int) -> World:
    """The ranks that read different micro-batches, where `tensor` processes in a row are one; every process calls it.

    Raises:
        WorkbenchError: the processes are no multiple of it.
    """
    if tensor == 1:
        return world
    if world.size % tensor:
        raise WorkbenchError(
            f"train.parallel.tensor = {tensor} does not divide the number of processes, {world.size}; start a multiple "
            f"of {tensor}, as by: torchrun --nproc-per-node {tensor} -m workbench pretrain ..."
        )
    places = range(0, world.size, tensor)
    alike, _ = dist.new_subgroups_by_enumeration([[first + i for first in places] for i in range(tensor)])
    together, _ = dist.new_subgroups_by_enumeration([[first + i for i in range(tensor)] for first in places])
    rank, size = world.rank // tensor, world.size // tensor
    return DataWorld(rank, size, world.device, world.membership, alike, whole=world, together=together)


def rows_sharded(module: nn.Module) -> set[nn.Parameter]:
    """The parameters of which every rank trains other rows, with exchanges of their own."""
    return {p for each in module.modules() if hasattr(each, ROWS) for p in getattr(each, ROWS)()}


def data_parallel(module: nn.Module) -> DistributedDataParallel:
    """The module replicated over all ranks, with averaged gradients.

    Components (a layer that is skipped, a head with a branch) and data (a rank without a micro-batch) decide which
    parameters a step uses. So DDP searches for unused parameters in every step: a walk over the graph while a GPU is
    busy. Gradients are views of the buffers that are reduced, so there is one copy of them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _Unadvised.apply(torch.zeros(1))
    own = rows_sharded(module)
    if ignored := [name for name, p in module.named_parameters() if p in own]:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)
    options: dict[str, Any] = {"broadcast_buffers": False, "gradient_as_bucket_view": True}
    return DistributedDataParallel(module, find_unused_parameters=True, **options)


class _Unadvised(torch.autograd.Function):
    """Triggers DDP's warning about the search for unused parameters once per process, with a toy module. DDP's C++
    writes it to the error stream of every rank; within an autograd function it becomes a Python warning, which is
    ignored."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        with torch.enable_grad():
            DistributedDataParallel(nn.Linear(1, 1), find_unused_parameters=True)(torch.ones(1, 1))
        return given.clone()


_world: World | None = None
"""The world of this process while it has joined the others."""


def world_from_environment() -> World:
    """The world that the launcher's variables describe (`workbench.core.processes.launch`), or a single process.

    It joins the process group: nccl for CUDA tensors and gloo for CPU tensors, or gloo alone without a GPU.
    LOCAL_RANK and LOCAL_WORLD_SIZE are set as torchrun sets them, whatever the launcher is.

    Raises:
        WorkbenchError: the variables contradict each other, or the node has fewer GPUs than processes.
        LostRanksError: the other ranks do not come.
    """
    launch = launch_of(os.environ)
    if launch.note:
        logger.warning("%s", launch.note)
    if launch.size == 1:
        return World(device=_device(launch, 0))
    if dist.is_initialized():
        return _world or World(launch.rank, launch.size, _device(launch, launch.local_rank or 0))
    raise_file_limit()
    membership = None
    try:
        with ends_at_once():
            membership = Membership(launch)
            device = _device(launch, membership.local_rank)
            os.environ |= {"LOCAL_RANK": str(membership.local_rank), "LOCAL_WORLD_SIZE": str(membership.local_size)}
            _join(membership, device)
    except BaseException as error:
        if membership is not None:
            membership.leave(error)
        if isinstance(error, dist.DistError | RuntimeError) and not isinstance(error, WorkbenchError):
            found = str(error).splitlines()[0]
            raise LostRanksError(f"rank {launch.rank} of {launch.size} cannot join the others: {found}") from error
        raise
    return World(launch.rank, launch.size, device, membership)


def _device(launch: Launch, local_rank: int) -> torch.device:
    """The GPU of this process, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if count == 1 and launch.launcher in ("SLURM", "Open MPI"):
        local_rank = 0  # a launcher that binds GPUs shows each process its own alone
    if local_rank >= count:
        raise WorkbenchError(
            f"rank {launch.rank} is local rank {local_rank}, but this node has {count} GPU(s); start "
            "at most as many processes per node as it has GPUs"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _join(membership: Membership, device: torch.device) -> None:
    launch = membership.launch
    # a connection to another rank is made when it is first used: a ring or a tree needs a few, and not all
    os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, timeout=membership.patience, store=membership.store, rank=launch.rank, world_size=launch.size
    )


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: every connection to a rank takes a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a system may refuse what it states
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def distributed() -> Iterator[World]:
    """The world for the duration of a run; leaves the process group at the end.

    After an error it leaves without waiting for the other ranks: they detect the closed connection, and end too.
    """
    global _world
    joined = dist.is_available() and dist.is_initialized()
    world = world_from_environment()
    leave = world.size > 1 and not joined
    if leave:
        _world = world
    try:
        yield world
    except BaseException as error:
        if leave:
            _leave(world, error)
        raise
    if leave:
        _leave(world)


def _leave(world: World, error: BaseException | None = None) -> None:
    """Leave the process group; after an error without waiting for the others."""
    global _world
    _world = None
    if world.membership is not None:
        world.membership.leave(error)
    if error is not None and world.device.type == "cuda":
        distributed_c10d._abort_process_group()  # collectives under way would never end
    else:
        dist.destroy_process_group()
