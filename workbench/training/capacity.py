"""Whether a model has room in memory, estimated before it is built, and what a step is going to take."""

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
from workbench.optimization.factory import moments
from workbench.optimization.groups import freeze
from workbench.recipe.spec import TrainSpec

logger = logging.getLogger(__name__)
GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
GIB = 2**30


def check_memory(make: Callable[[], nn.Module], spec: TrainSpec, device: torch.device) -> None:
    """Lay the model out without memory (on torch's meta device) and compare what training it takes with what is free.

    Counted are the weights, and of what is trained the gradients and the optimizer's moments; not the activations.

    Args:
        make: builds the model.
        spec: what is frozen, and which optimizer trains the rest.

    Raises:
        WorkbenchError: it does not fit; says its size, what it takes and what there is.
    """
    try:
        with torch.device("meta"):
            model = make()
        freeze(model, spec)
    except Exception as error:  # a part that needs real numbers to be made; what else is wrong is told when it is built
        logger.debug("the model's size is not known before it is built: %s", error)
        return
    needed, free = resident(model, spec), free_memory(device)
    if needed > free:
        raise WorkbenchError(
            f"the model has {sum(p.numel() for p in model.parameters()):,} parameters: weights, gradients and the "
            f"optimizer's moments take {needed / GIB:,.1f} GiB, and {free / GIB:,.1f} GiB are free on {device.type}. "
            "Make it smaller (hidden_size, layers, vocab_size), freeze parts of it (train.freeze), or use a larger "
            "machine"
        )


def resident(model: nn.Module, spec: TrainSpec) -> int:
    """Bytes of the weights and buffers, and of what is trained the gradients and the optimizer's moments."""
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    return held + round((1 + moments(spec)) * _trained(model))


def step_peak(
    trial: Callable[[], object], model: nn.Module, optimizer: torch.optim.Optimizer, spec: TrainSpec, world: World
) -> int:
    """Bytes of the CUDA device that this process is going to hold at the peak of a step, about.

    They are what is held now, what the allocator adds in a trial, and what the trial does not have: the optimizer's
    moments, the gradients of the micro-batches before, and DDP's copy of them.

    Args:
        trial: forward and backward of a micro-batch, whose gradients are returned, not kept.
    """
    device = world.device
    torch.cuda.reset_peak_memory_stats(device)
    trial()
    peak = torch.cuda.max_memory_allocated(device)
    trained = _trained(model)
    moved = 0.0 if optimizer.state else moments(spec)
    accumulates = spec.lanes > world.size
    return peak + round((moved + accumulates + (world.size > 1)) * trained)


def forget_trials(device: torch.device) -> None:
    """Give back what the allocator of a CUDA device kept after a trial, and begin its peak anew."""
    if device.type == "cuda":
        gc.collect()  # a trial that failed may be held by its traceback
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _trained(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still take: of the GPU, or its share of the machine's (or container's) memory."""
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
