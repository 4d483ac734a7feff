"""Whether a model fits in memory, estimated before it is built, and the memory that a step will take."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.models.sharded_table import ShardedTable
from workbench.models.sharding import local
from workbench.optimization.factory import moments
from workbench.optimization.groups import freeze
from workbench.recipe.spec import TrainSpec

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
        with torch.device("meta"):
            model = make()
        freeze(model, spec)
    except Exception as error:  # a component needs real numbers to be built; other errors are raised when it is built
        logger.debug("the model's size is not known before it is built: %s", error)
        return
    needed, free = resident(model, spec) // parts + of_tables(model, device), free_memory(device)
    if needed > free:
        raise WorkbenchError(
            f"the model has {sum(p.numel() for p in model.parameters()):,} parameters: weights, gradients and the "
            f"optimizer's moments take {needed / GIB:,.1f} GiB, and {free / GIB:,.1f} GiB are free on {device.type}. "
            "Make it smaller (hidden_size, layers, vocab_size), freeze parts of it (train.freeze), shard it over more "
            "ranks (train.parallel.shard=full), or use a larger machine"
        )


def resident(model: nn.Module, spec: TrainSpec) -> int:
    """Bytes of the weights and buffers of this process, and of the gradients and optimizer moments of trained weights;
    without sharded tables."""
    held = sum(local(t).nbytes for t in (*model.parameters(), *model.buffers()) if not hasattr(t, "rows_sharded"))
    return held + round((1 + moments(spec)) * _trained(model))


def of_tables(model: nn.Module, device: torch.device) -> int:
    """Bytes of the device that this rank's rows of sharded tables take, with their moments."""
    return sum(table.needed(device) for table in model.modules() if isinstance(table, ShardedTable))


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
    trained = _trained(model)
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


def _trained(model: nn.Module) -> int:
    trained = (p for p in model.parameters() if p.requires_grad and not hasattr(p, "rows_sharded"))
    return sum(local(parameter).nbytes for parameter in trained)


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
