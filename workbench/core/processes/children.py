"""The cores of this machine, and what of them a process may take.

A process that was started to work for another ends when that one does, however it ended.

How a process ended that was not asked to, in words.
"""

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
"""Loader processes of a GPU at most: each decodes some 130 photographs a second."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaders(device: torch.device) -> int:
    """How many loader processes a rank on `device` should have: a GPU all of its share of the cores but one, at most
    `MOST_LOADERS`; a CPU one, since training itself takes the cores."""
    if device.type == "cpu":
        return 1
    share = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(share - 1, MOST_LOADERS))


def follow_parent() -> None:
    """End this process when its parent ends, killed ones included, even if that happened already.

    To be called in the child. The parent is known by a pipe that its end closes, not by its number: a child that looks
    for the number after its parent was killed finds whoever took the child over, and would wait for that one.
    """
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def how_it_ended(process: BaseProcess, what: str) -> str:
    """A process that has ended, and the signal that killed it or the exit code it gave.

    Args:
        what: what it was for, as in 'a loader worker'.
    """
    code = process.exitcode or 0
    by = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{what} (process {process.pid}) {by}"
