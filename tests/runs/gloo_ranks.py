"""Functions run by several gloo ranks on this machine, each a process of its own with a time limit."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor

from tests.fork_server import SERVER
from workbench.core.processes.distributed import World

PATIENCE = 60.0
KILLED = -9


@dataclass(frozen=True)
class Phase:
    """A call of `function(world, *arguments)` by the first `size` ranks."""

    size: int
    function: Callable[..., None]
    arguments: tuple[Any, ...] = ()


def on_ranks(phases: Sequence[Phase], folder: Path, *, killed: bool = False) -> None:
    """Run phases one after another, each with a process group of its own, in as many processes as the largest has.

    Args:
        folder: a place for the output of the ranks.
        killed: whether a rank is to be killed by itself; the others are then killed too.
    """
    folder.mkdir(exist_ok=True)
    for rest in folder.iterdir():
        rest.unlink()
    size = max(phase.size for phase in phases)
    ranks = [SERVER.Process(target=_rank, args=(phases, rank, folder)) for rank in range(size)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + PATIENCE + 15 * len(phases)
    while any(process.is_alive() for process in ranks) and time.monotonic() < deadline:
        if any(process.exitcode for process in ranks):
            deadline = min(deadline, time.monotonic() + 1)  # the others wait for it in vain
        time.sleep(0.01)
    codes = [process.exitcode for process in ranks]  # None: still running
    for process in ranks:
        process.kill()
        process.join()
    said = "\n".join(path.read_text() for path in sorted(folder.glob("rank-*.txt")))
    assert (KILLED in codes) if killed else codes == [0] * size, f"{codes}\n{said}"


def _rank(phases: Sequence[Phase], rank: int, folder: Path) -> None:
    with (folder / f"rank-{rank}.txt").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        torch.set_num_threads(1)
        limit = timedelta(seconds=PATIENCE)
        try:
            for number, phase in enumerate(phases):
                if rank >= phase.size:
                    continue
                store = f"file://{folder / f'store-{number}'}"
                dist.init_process_group("gloo", init_method=store, rank=rank, world_size=phase.size, timeout=limit)
                phase.function(World(rank, phase.size), *phase.arguments)
                dist.barrier()
                dist.destroy_process_group()
        except BaseException:
            traceback.print_exc(file=file)
            file.flush()
            os._exit(1)
        os._exit(0)
