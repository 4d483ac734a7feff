"""How fast a run goes: tokens, samples and operations per second since the last line of metrics."""

from __future__ import annotations

import time

from workbench.processes.distributed import World
from workbench.runs.metrics import Record
from workbench.training.metrics import memory_gib
from workbench.training.step import StepResult


class Meter:
    """Counts what the steps of this process did and the time they took; evaluating and saving are left out.

    Args:
        seconds: training time of the run before this process.
        flops_per_row: operations of one stream row, forward and backward; 0 where unknown.
        peak: operations per second of one device; 0 where unknown.
    """

    def __init__(self, world: World, seconds: float, flops_per_row: float = 0.0, peak: float = 0.0) -> None:
        self.world = world
        self.seconds = seconds
        self.flops_per_row, self.peak = flops_per_row, peak
        self._start = time.perf_counter()
        self._reset()

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
        """The rates since the last call."""
        seconds, steps = max(self._lap, 1e-9), max(1, self._steps)
        record = {
            "tokens_per_second": self._rows / seconds,
            "samples_per_second": self._samples / seconds,
            "seconds_per_step": seconds / steps,
            "seconds": self.seconds,
            "memory_gib": memory_gib(self.world.device),
        }
        if self.peak:
            per_device = self._rows * self.flops_per_row / seconds / self.world.size
            record["model_flops_utilisation"] = per_device / self.peak
        self._reset()
        return record

    def _reset(self) -> None:
        self._lap, self._rows, self._samples, self._steps = 0.0, 0, 0, 0
