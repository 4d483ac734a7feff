"""The clock of measurements of speed."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def clock_of(threads: int = 1, device: str = "cpu") -> Clock:
    """Processor time of this process where one thread computes; otherwise the time of day, after the device's work."""
    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter
    import torch

    def waited() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return waited
