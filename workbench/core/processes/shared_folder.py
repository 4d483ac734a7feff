"""The check that all ranks see one folder: before step 0, as a run without a shared folder could not be resumed."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import torch

from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.lock import LOCK, record_of
from workbench.core.processes.distributed import World

HERE, ELSEWHERE = 1.0, 65.0
"""Seconds in which a rank must see the record of rank 0: on the same host, and on others. NFS keeps the attributes of a
folder for up to 60 seconds."""
SHOWN = 4


def refuse_unshared(folder: Path, world: World) -> None:
    """Check that each rank sees this folder, which rank 0 has locked.

    The record of the lock has a random number, so that neither a folder of another node nor an older record is taken
    for it.

    Raises:
        WorkbenchError: some rank has another folder of this name, or another folder; the message names its node.
    """
    if world.size == 1:
        return
    record, host = world.from_main(lambda: (record_of(folder), socket.gethostname()))
    if not record:  # the disk of rank 0 is full
        return
    here = socket.gethostname()
    found = world.is_main or _sees(folder / LOCK, record, HERE if host == here else ELSEWHERE)
    if not world.sum(torch.tensor([float(not found)])).item():
        return
    ranks = world.gather((found, here, str(folder.absolute())))
    blind = [f"rank {rank} on {node}: {place}" for rank, (sees, node, place) in enumerate(ranks) if not sees]
    more = f" and {len(blind) - SHOWN} more ranks" if len(blind) > SHOWN else ""
    raise WorkbenchError(
        f"the run folder of rank 0 ({quoted(ranks[0][2])} on {host}) is not that of {'; '.join(blind[:SHOWN])}{more}. "
        "All ranks need one run folder on a shared file system: give the same --output on every node, as an absolute "
        "path to a folder that all of them mount; where it is a URL, give the same WORKBENCH_SCRATCH"
    )


def _sees(lock: Path, record: bytes, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            next(lock.parent.parent.iterdir(), None)  # has a network file system ask its server again
            if lock.read_bytes() == record:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
