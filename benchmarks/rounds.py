"""The rounds of a benchmark of speed: contestants in turns, a clock that other work disturbs little, and no result by
chance."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from pipelines.gpu.clock import Clock, clock_of

__all__ = ["Clock", "clock_of", "compared", "medians", "timed"]
Name = TypeVar("Name", bound=Hashable)

SCATTER = 3.0
"""Rounds of one contestant that differ by more than this factor say nothing of it."""


def timed(work: Callable[[], object], clock: Clock = time.process_time) -> float:
    """Seconds that a piece of work takes."""
    started = clock()
    work()
    return clock() - started


def compared(
    works: Mapping[Name, Callable[[], object]], rounds: int, clock: Clock = time.process_time
) -> dict[Name, float]:
    """The median seconds of each contestant's rounds, as `medians`; a first round of each is not counted."""
    seconds: dict[Name, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            taken = timed(work, clock)
            if number:
                seconds[name].append(taken)
    return medians(seconds)


def medians(rounds: Mapping[Name, Sequence[float]]) -> dict[Name, float]:
    """The median of each contestant's rounds.

    Where rounds differ by more than `SCATTER` it is nan, and a line says so: other work decided, not the contestant.
    """
    found = {}
    for name, values in rounds.items():
        found[name] = statistics.median(values)
        if max(values) > SCATTER * min(values):
            print(
                f"refused: the rounds of {name} scatter {max(values) / min(values):.1f} times, {SCATTER:.0f} times are "
                "allowed; use one thread or wait for less other work",
                flush=True,
            )
            found[name] = float("nan")
    return found
