"""Child processes: the number of cores, the end of a child with its parent, and how a child ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


MOST_LOADERS = 16
"""The maximal number of loader processes per GPU: each decodes about 130 photographs a second."""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaders(device: torch.device) -> int:
    """The number of loader processes of a rank on `device`. A GPU gets all but one of its share of the cores, at most
    `MOST_LOADERS`; a CPU gets one, since training itself needs the cores."""
    if device.type == "cpu":
        return 1
    share = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(share - 1, MOST_LOADERS))


def follow_parent() -> None:
    """End this process when its parent ends, even if the parent was killed or has already ended.

    Call it in the child. The child watches a pipe that the parent's end closes, and not the parent's process id: after
    the parent is killed, the id would be that of the process that adopted the child.
    """
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def how_it_ended(process: BaseProcess, what: str) -> str:
    """A description of how a process ended: the signal that killed it or its exit code.

    Args:
        what: the process's role, as in 'a loader worker'.
    """
    code = process.exitcode or 0
    by = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{what} (process {process.pid}) {by}"
