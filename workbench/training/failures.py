"""Failures of the machine, as messages; every other error is a bug and keeps its traceback. Also the blocks whose
failure does not end a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist

from workbench.core.errors import MachineError
from workbench.core.processes.distributed import World
from workbench.core.processes.membership import LostRanksError
from workbench.core.processes.signals import StopRequest

logger = logging.getLogger(__name__)
GO_ON = "Once that is fixed, the same command continues from the last checkpoint"
NEED_LESS = (
    "Lower train.micro_batch_size (accumulation makes up for it), or set train.activation_checkpointing=true (layers "
    "compute their activations again) or train.compile=true (fewer of them are kept)"
)
GIB = 2**30
TRIED = re.compile(r"[Tt]ried to allocate [\d.]+ \w+")
LOST_PEER = re.compile(
    r"gloo|Connection (closed|reset) by peer|Broken pipe|NCCL|timeout caused pair closure", re.IGNORECASE
)


@contextmanager
def named_failures(world: World, need_less: str = NEED_LESS, resume: str = GO_ON) -> Iterator[None]:
    """A block in which failures of the machine become errors with a plain message.

    Args:
        need_less: advice on using less memory, for the message.
        resume: advice on continuing, for the message.

    Raises:
        MachineError: no memory was left, or another rank ended or hangs.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MachineError(f"{_memory(world, str(error))}. {need_less}. {resume}") from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch has no type of its own for a full host
            raise MachineError(f"{_memory(world, str(error))}. {need_less}. {resume}") from error
        if world.size > 1 and (isinstance(error, dist.DistError) or LOST_PEER.search(str(error))):
            StopRequest.no_more_saves("other ranks are lost")
            lost = world.missing() or "one of them ended or does not answer"
            raise LostRanksError(
                f"rank {world.rank} of {world.size} lost the others: {lost}. Look for the reason there; this rank "
                f"only noticed: {_line(error)}. {resume}"
            ) from error
        raise


def _memory(world: World, detail: str) -> str:
    return f"{world.name}: out of memory on {world.device} ({_asked(world, detail)})"


def _asked(world: World, detail: str) -> str:
    """The memory that was asked for and the memory there is; torch's own message where it is not about a GPU."""
    line = detail.splitlines()[0] if detail else "host"
    if world.device.type != "cuda":
        return line
    asked = TRIED.search(line)
    with suppress(Exception):  # the device may be beyond answering
        free, total = torch.cuda.mem_get_info(world.device)
        held, kept = torch.cuda.memory_allocated(world.device), torch.cuda.memory_reserved(world.device)
        return (
            f"{asked[0] if asked else line}; of {total / GIB:.1f} GiB {free / GIB:.1f} are free, {held / GIB:.1f} are "
            f"tensors of this process, and {max(0, kept - held) / GIB:.1f} are reserved by it for new ones"
        )
    return line


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Spared:
    """Blocks whose failure does not end a run: metrics, the display, counting and measuring for them.

    A failure in one is logged once and ends the block. An exception that is no `Exception`, such as Ctrl-C, passes.

    Args:
        logs: whether this process logs failures; one of several ranks does.
    """

    def __init__(self, *, logs: bool = True) -> None:
        self.logs = logs
        self.failed: set[str] = set()
        """The failures so far."""
        self._unlogged: list[str] = []

    @contextmanager
    def __call__(self, what: str, *, later: bool = False) -> Iterator[None]:
        """A block whose failure does not end the run.

        Args:
            what: the work done in the block: its name in the message.
            later: log the failure in `log` only: a failure in a trial may be an error that ends the run by itself. A
                block without it logs its own failure alone.
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
                self._unlogged.append(f"{what} failed and is left out ({why})")
                if not later:
                    self._warn(self._unlogged.pop())

    def log(self) -> None:
        """Log the failures that were not logged yet."""
        for reported in self._unlogged:
            self._warn(reported)
        self._unlogged.clear()

    def _warn(self, reported: str) -> None:
        if self.logs:
            logger.warning("%s; the run continues without it", reported)
