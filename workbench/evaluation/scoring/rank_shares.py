"""Ranks that share the work of an evaluation.

A task with `gathers` cuts its corpus into groups as for one rank. Each rank computes every n-th group of n ranks, and
all ranks get the results of all groups, in their order. So numbers and files are those of one rank; the main rank
writes the files. Tasks without `gathers` are scored by the main rank alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from workbench.core.processes.distributed import World

Group = TypeVar("Group")
Outcome = TypeVar("Outcome")


def shared_groups(world: World, groups: Iterable[Group], make: Callable[[int, Group], Outcome]) -> list[Outcome]:
    """The results of `make(number, group)` for all groups, in the order of the groups, on every rank.

    Every rank iterates over the groups, so costly work (decoding, a forward pass) belongs into `make`. Its results are
    sent between the ranks, so they must be on the CPU. The groups, and so the results, are those of one rank alone.
    """
    mine = {number: make(number, group) for number, group in enumerate(groups) if number % world.size == world.rank}
    found = {number: made for theirs in world.gather(mine) for number, made in theirs.items()}
    return [found[number] for number in sorted(found)]
