"""What can happen to a machine at work, as messages; everything else is a bug and keeps its traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from workbench.errors import MachineError
from workbench.processes.distributed import World

GO_ON = "Once that is mended, the same command goes on from the last checkpoint"
NEED_LESS = "Lower train.micro_batch_size (accumulation makes up for it) or set train.activation_checkpointing"
LOST_PEER = re.compile(r"gloo|Connection (closed|reset) by peer|Broken pipe|NCCL", re.IGNORECASE)


@contextmanager
def named_failures(world: World, need_less: str = NEED_LESS, go_on: str = GO_ON) -> Iterator[None]:
    """
    Args:
        need_less: how to do with less memory, for the message.
        go_on: what to do after all, for the message.

    Raises:
        MachineError: no memory was left, or another rank ended or hangs.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MachineError(f"{_memory(world, str(error))}. {need_less}. {go_on}") from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch has no type of its own for a full host
            raise MachineError(f"{_memory(world, str(error))}. {need_less}. {go_on}") from error
        if world.size > 1 and (isinstance(error, dist.DistError) or LOST_PEER.search(str(error))):
            raise MachineError(
                f"rank {world.rank} of {world.size} lost the others: one of them ended, or did not answer for half an "
                f"hour; its own message says why ({_line(error)}). {go_on}"
            ) from error
        raise


def _memory(world: World, detail: str) -> str:
    return f"rank {world.rank}: out of memory on {world.device} ({detail.splitlines()[0] if detail else 'host'})"


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
