"""How fast a run goes: tokens, samples and operations per second since the last line of metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.processes.distributed import World
from workbench.runs.metrics import Record
from workbench.training.failures import Spared
from workbench.training.metrics import memory_gib
from workbench.training.step import StepResult


class Meter:
    """Counts what the steps of this process did and the time they took; evaluating and saving are left out.

    Args:
        seconds: training time of the run before this process.
        spared: what a run can do without.
        flops_per_row: operations of one stream row, forward and backward; 0 where unknown.
        peak: operations per second of one device; 0 where unknown.
    """

    def __init__(
        self, world: World, seconds: float, spared: Spared, flops_per_row: float = 0.0, peak: float = 0.0
    ) -> None:
        self.world, self.spared = world, spared
        self.seconds = seconds
        self.flops_per_row, self.peak = flops_per_row, peak
        self._start = time.perf_counter()
        self._reset()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block in which the loop waits for its loader."""
        before = time.perf_counter()
        yield
        self._waited += time.perf_counter() - before

    def add(self, result: StepResult) -> None:
        """Count a finished step."""
        now = time.perf_counter()
        self.seconds += now - self._start
        self._lap += now - self._start
        self._start = now
        self._rows += result.rows
        self._samples += result.samples
        self._steps += 1

    def skip(self) -> None:
        """Leave out the time since the last step."""
        self._start = time.perf_counter()

    def lap(self) -> Record:
        """The rates since the last call; `data_wait_share` is the share of the time in which the loop waited for its
        loader, `model_flops_utilisation` that of the operations which `peak` allows."""
        seconds, steps = max(self._lap, 1e-9), max(1, self._steps)
        record: Record = {
            "tokens_per_second": self._rows / seconds,
            "samples_per_second": self._samples / seconds,
            "seconds_per_step": seconds / steps,
            "data_wait_share": min(1.0, self._waited / seconds),
            "seconds": self.seconds,
        }
        with self.spared("reading how much memory is held"):
            record["memory_gib"] = memory_gib(self.world.device)
        if self.peak and self.flops_per_row:
            per_device = self._rows * self.flops_per_row / seconds / self.world.size
            record["model_flops_utilisation"] = per_device / self.peak
        self._reset()
        return record

    def _reset(self) -> None:
        self._lap, self._waited, self._rows, self._samples, self._steps = 0.0, 0.0, 0, 0, 0
