"""What a learning-rate schedule is: the share of the peak rate (`train.lr`) that an update takes.

A schedule is a pure function of the step, so a run resumes at any step without state. One that asks for `max_steps`
falls towards it, and a run of it cannot become longer; any other can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from workbench.options.bounds import Count, CountOrZero


class LearningRateSchedule(ABC):
    """Called with the number of an update (from 0), it gives the share of the peak, 0 or more.

    `warmup_steps` is the number of updates in which it rises.
    """

    warmup_steps: int = 0

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The share of update `step`."""


class Warmed(LearningRateSchedule):
    """A schedule that begins with a linear warm-up: 1 / n, 2 / n, ..., 1 in the first n = `warmup_steps` updates."""

    def __init__(self, warmup_steps: CountOrZero = 0) -> None:
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        return (step + 1) / self.warmup_steps if step < self.warmup_steps else self.after_warmup(step)

    @abstractmethod
    def after_warmup(self, step: int) -> float:
        """The share of update `step`, which is `warmup_steps` or later."""


class Falling(Warmed):
    """A warm-up, then a fall that ends at `max_steps`."""

    def __init__(self, max_steps: Count, warmup_steps: CountOrZero = 0) -> None:
        super().__init__(warmup_steps)
        self.max_steps = max_steps

    def progress(self, step: int) -> float:
        """How much of the time from the end of the warm-up to `max_steps` has passed, 0 to 1."""
        return min(1.0, (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps))
