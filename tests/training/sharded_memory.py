"""A run of a rank whose memory is limited: `python -m tests.training.sharded_memory SMALL RECIPE RUN MIB OVERRIDES`.

The limit is `MIB` above what the process has after a run of the recipe SMALL: private writable memory, as `setrlimit`
counts it. Files that are mapped and shared do not count, as the system may write them back.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

from workbench.core.processes.distributed import world_from_environment
from workbench.recipe.reading import load_recipe
from workbench.training.pretrain import pretrain

STATUS = Path("/proc/self/status")


def held(what: str) -> int:
    """Bytes of a line of the process's status."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{what}:"))
    return int(line.split()[1]) * 1024


def main(small: str, recipe: str, run: str, mib: str, *overrides: str) -> None:
    torch.set_num_threads(1)
    world = world_from_environment()
    pretrain(load_recipe(small, list(overrides)), f"{run}-small")
    before = held("RssAnon")
    limit = held("VmData") + int(mib) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pretrain(load_recipe(recipe, list(overrides)), run, until=2)  # its end would map the files of all ranks
    world.barrier()
    print(f"grew by {(held('RssAnon') - before) / 2**20:.0f} MiB")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
