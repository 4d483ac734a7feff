"""Whether a model fits in memory, estimated before it is built, and the memory that a step will take."""

from __future__ import annotations

import gc
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.models.tensor_cut import is_spread, local
from workbench.optimization.factory import moments
from workbench.optimization.groups import freeze
from workbench.parallel.lean_building import shapes_alone
from workbench.parallel.sharded_table import ShardedTable, count_parameters
from workbench.parallel.tensor_parallel import planned_cuts
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.train_spec import TrainSpec
from workbench.training.parallel import whole_parameters

logger = logging.getLogger(__name__)
GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
GIB = 2**30


def check_memory(make: Callable[[], nn.Module], spec: TrainSpec, device: torch.device, parts: int = 1) -> None:
    """Build the model without memory (on torch's meta device) and compare the memory that training takes with the free
    memory.

    Counted are the weights, and for trained weights the gradients and the optimizer's moments; not the activations.

    Args:
        make: builds the model.
        spec: what is frozen, and which optimizer trains the rest.
        parts: over which the model is sharded.

    Raises:
        WorkbenchError: it does not fit. The message has its size, the memory it needs and the memory that is free.
    """
    try:
        with shapes_alone():
            model = make()
        freeze(model, spec)
        needed = resident(model, spec, device, parts)
    except Exception as error:  # a component needs real numbers to be built; other errors are raised when it is built
        logger.debug("the model's size is not known before it is built: %s", error)
        return
    if needed > (free := free_memory(device)):
        raise WorkbenchError(
            f"the model has {count_parameters(model):,} parameters: weights, gradients and the "
            f"optimizer's moments take {needed / GIB:,.1f} GiB, and {free / GIB:,.1f} GiB are free on {device.type}. "
            "Make it smaller (hidden_size, layers, vocab_size), freeze parts of it (train.freeze), shard it over more "
            "ranks (train.parallel.shard=full), or use a larger machine"
        )


def resident(model: nn.Module, spec: TrainSpec, device: torch.device, parts: int = 1) -> int:
    """Bytes of the weights and buffers of this process, and of the gradients and optimizer moments of trained weights,
    with those of the rows of sharded tables that the device holds.

    Before the model is divided this is what the main rank will hold, which has the most.

    Args:
        parts: over which the model is sharded, or will be.
    """
    share = _shares(model, spec.parallel.tensor, parts)
    held = sum(map(share, (*_without_tables(model.parameters()), *model.buffers())))
    tables = sum(table.needed(device) for table in model.modules() if isinstance(table, ShardedTable))
    return held + round((1 + moments(spec)) * sum(map(share, _trained(model)))) + tables


def _shares(model: nn.Module, tensor: int, parts: int) -> Callable[[Tensor], int]:
    """The bytes that the main rank has of a parameter or buffer.

    Under FSDP it has the first ceil(n / parts) of n rows. Buffers are not sharded, nor what `whole_parameters` lists.
    """
    if any(map(is_spread, model.parameters())):  # divided already
        return lambda found: local(found).nbytes
    cuts = planned_cuts(model, tensor) if tensor > 1 else {}
    whole = whole_parameters(model) if isinstance(model, PretrainingModel) else set()

    def share(found: Tensor) -> int:
        sizes = [*found.shape]
        if found in cuts:
            sizes[cuts[found].dim] //= tensor
        if sizes and isinstance(found, nn.Parameter) and found not in whole:
            sizes[0] = -(-sizes[0] // parts)
        return math.prod(sizes) * found.element_size()

    return share


def step_peak(
    trial: Callable[[], object], model: nn.Module, optimizer: torch.optim.Optimizer, spec: TrainSpec, world: World
) -> int:
    """An estimate of the bytes of the CUDA device that this process will hold at the peak of a step.

    The estimate adds up the memory held now, the memory that the allocator adds in a trial, and what the trial lacks:
    the optimizer's moments, the gradients of earlier micro-batches, and DDP's copy of them.

    Args:
        trial: forward and backward of a micro-batch; the gradients are returned, not stored.
    """
    device = world.device
    torch.cuda.reset_peak_memory_stats(device)
    trial()
    peak = torch.cuda.max_memory_allocated(device)
    trained = sum(local(p).nbytes for p in _trained(model))
    moved = 0.0 if optimizer.state else moments(spec)
    accumulates = spec.lanes > world.size
    tables = [table for table in model.modules() if isinstance(table, ShardedTable) and not table.moments]
    rows = sum(table.needed(device) - (0 if table.on_host else table.weight.nbytes) for table in tables)
    return peak + round((moved + accumulates + (world.size > 1)) * trained) + rows


def forget_trials(device: torch.device) -> None:
    """Release the memory that the allocator of a CUDA device holds after a trial, and reset its peak."""
    if device.type == "cuda":
        gc.collect()  # a trial that failed may be held by its traceback
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _trained(model: nn.Module) -> Iterator[nn.Parameter]:
    return (p for p in _without_tables(model.parameters()) if p.requires_grad)


def _without_tables(parameters: Iterable[nn.Parameter]) -> Iterator[nn.Parameter]:
    return (p for p in parameters if not hasattr(p, "rows_sharded"))


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still allocate: on the GPU, or its share of the machine's (or container's) memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [int(text) for path in GROUP_LIMITS if (text := _read(path)).isdigit()]
    free = min([psutil.virtual_memory().available, *limits])
    return free // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
