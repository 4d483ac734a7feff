"""Sums over ranks that do not connect every rank with every other one."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch
from torch import distributed as dist

from tests.training.command_processes import SERVER
from tests.training.test_ranks import free_port
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World, distributed, raise_file_limit
from workbench.parallel.collectives import collective_check

Found = dict[str, Any]
LIMIT = 60


def ranks(work: Callable[..., None], size: int, *arguments: object, **also: str) -> list[Found]:
    """The findings of `work(world, findings, ...)` on each of so many ranks."""
    port, queue = str(free_port()), SERVER.Queue()
    places = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORKBENCH_PATIENCE": "50"}
    started = []
    for rank in range(size):
        environment = {**places, **also, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
        started.append(SERVER.Process(target=_rank, args=(environment, queue, work, arguments), daemon=True))
        started[-1].start()
    try:
        found = [queue.get(timeout=LIMIT) for _ in started]
    finally:
        for process in started:
            process.join(10)
            process.kill()
    return sorted(found, key=lambda each: each["rank"])


def _rank(environment: dict[str, str], queue: Any, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    found: Found = {"rank": int(environment["RANK"])}
    with distributed() as world:
        work(world, found, *arguments)
        world.barrier()
    queue.put(found)


def sums(world: World, found: Found, repeats: int) -> None:
    """Sums as a step makes them, and the connections to other ranks."""
    values = torch.tensor([1.0, 10.0 ** (16 - world.rank), 0.1 * world.rank], dtype=torch.float64)
    found["sum"] = world.sum(values).tolist()
    for _ in range(repeats):
        world.sum(torch.ones(8, dtype=torch.float64))
    dist.all_reduce(torch.ones(10**5))  # gradients
    world.from_main(lambda: 1)
    found["gathered"] = world.gather(world.rank)
    own = [each for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]
    store = int(os.environ["MASTER_PORT"])
    found["connections"] = sum(store not in (each.laddr.port, each.raddr.port) for each in own if each.raddr)


@pytest.mark.parametrize("size", [2, 5])
def test_sums_of_ranks(size: int) -> None:
    found = ranks(sums, size, 1)
    whole = found[0]["sum"]
    assert whole[0] == size
    assert whole[2] == pytest.approx(0.1 * sum(range(size)))
    assert all(each["sum"] == whole for each in found)
    assert all(each["gathered"] == list(range(size)) for each in found)


def checked(world: World, found: Found) -> None:
    with collective_check(world) as check:
        assert check is not None
        world.sum(torch.ones(3))
        found["counts"] = dict(check.counts)
        try:
            world.sum(torch.ones(4 - world.rank))
        except WorkbenchError as error:
            found["refused"] = str(error)


def test_sums_of_pairs_are_checked() -> None:
    for each in ranks(checked, 3, WORKBENCH_COLLECTIVES="check"):
        assert each["counts"] == {"sum_in_pairs": 1}
        assert "ranks make different collectives: rank 0: sum_in_pairs" in each["refused"]


def test_the_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.scale
def test_eight_ranks_have_four_connections_each() -> None:
    """With all of them it would be seven."""
    assert max(each["connections"] for each in ranks(sums, 8, 20)) <= 4
