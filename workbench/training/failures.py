"""What can happen to a machine at work, as messages; everything else is a bug and keeps its traceback. And what a run
can do without, whose failures do not end it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist

from workbench.core.errors import MachineError
from workbench.core.processes.distributed import World

logger = logging.getLogger(__name__)
GO_ON = "Once that is fixed, the same command continues from the last checkpoint"
NEED_LESS = (
    "Lower train.micro_batch_size (accumulation makes up for it), or set train.activation_checkpointing=true (layers "
    "compute their activations again) or train.compile=true (fewer of them are kept)"
)
GIB = 2**30
TRIED = re.compile(r"[Tt]ried to allocate [\d.]+ \w+")
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
    return f"rank {world.rank}: out of memory on {world.device} ({_asked(world, detail)})"


def _asked(world: World, detail: str) -> str:
    """What was asked for, of how much; torch's own message where it is not about a GPU."""
    line = detail.splitlines()[0] if detail else "host"
    if world.device.type != "cuda":
        return line
    asked = TRIED.search(line)
    with suppress(Exception):  # the device may be beyond answering
        free, total = torch.cuda.mem_get_info(world.device)
        held, kept = torch.cuda.memory_allocated(world.device), torch.cuda.memory_reserved(world.device)
        return (
            f"{asked[0] if asked else line}; of {total / GIB:.1f} GiB {free / GIB:.1f} are free, {held / GIB:.1f} are "
            f"tensors of this process, and {max(0, kept - held) / GIB:.1f} are kept by it for new ones"
        )
    return line


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Spared:
    """Blocks that a run can do without: metrics, the display, what is counted and measured for them.

    A failure in one is told once, and leaves the block; what is no `Exception`, such as Ctrl-C, goes through.

    Args:
        tells: whether this process says so; of several ranks one.
    """

    def __init__(self, *, tells: bool = True) -> None:
        self.tells = tells
        self.failed: set[str] = set()
        """What has failed so far."""
        self._untold: list[str] = []

    @contextmanager
    def __call__(self, what: str, *, later: bool = False) -> Iterator[None]:
        """
        Args:
            what: what is done in the block, for the message and as its name.
            later: told by `tell` alone: what fails in a trial may be an error that ends the run by itself.
        """
        try:
            yield
        except Exception as error:
            if what not in self.failed:
                self.failed.add(what)
                why = (
                    "out of memory"
                    if isinstance(error, torch.OutOfMemoryError)
                    else f"{type(error).__name__}: {_line(error)}"
                )
                self._untold.append(f"{what} failed and is left out ({why})")
        if not later:
            self.tell()

    def tell(self) -> None:
        """Say what has failed and was not said yet."""
        for reported in self._untold if self.tells else ():
            logger.warning("%s; the run continues without it", reported)
        self._untold.clear()
