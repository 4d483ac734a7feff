"""What the ranks of a run measure of themselves, so that a slow one is seen: forward time, data wait, memory.

The time of a step is the same on all ranks, since they wait for each other in it. The forward of a replicated model
waits for no other rank, so its time shows the speed of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from workbench.runs.metrics_file import Record

FORWARD = "rank_forward_seconds"
"""The name of the forward time of a step in metrics.jsonl, before `_min`, `_mean`, `_max` and `_max_rank`."""
SHOWN_FROM = 1.05
"""A rank is shown in the progress line from this ratio of its time to the mean."""


class ForwardClock:
    """Adds up the time of forwards: on the device by CUDA events, so that the host need not wait for it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._used = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """A block with one forward."""
        if self.device.type != "cuda":
            start = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - start
            return
        if self._used == len(self._events):
            self._events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        begin, end = self._events[self._used]
        self._used += 1
        begin.record()
        yield
        end.record()

    def read(self) -> None:
        """Add the forwards of a finished step, for which the host has already waited; the events are used again."""
        for begin, end in self._events[: self._used]:
            self._seconds += begin.elapsed_time(end) / 1000
        self._used = 0

    def take(self) -> float:
        """The seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def statistics(ranks: Sequence[Mapping[str, float]]) -> Record:
    """The smallest, mean and largest value of each name over the ranks, and the rank of the largest (`_max_rank`)."""
    record: Record = {}
    for name in ranks[0] if ranks else ():
        values = [rank[name] for rank in ranks if name in rank]
        record[f"{name}_min"], record[f"{name}_max"] = min(values), max(values)
        record[f"{name}_mean"] = sum(values) / len(values)
        record[f"{name}_max_rank"] = values.index(max(values))
    return record


def slowest(record: Record) -> str:
    """The slowest rank of a line of metrics, as the progress line shows it; "" where the ranks are about equal."""
    mean, most = record.get(f"{FORWARD}_mean", 0.0), record.get(f"{FORWARD}_max", 0.0)
    if not mean or most < SHOWN_FROM * mean:
        return ""
    return f"rank {record[f'{FORWARD}_max_rank']} {most / mean:.2f}x slower"
