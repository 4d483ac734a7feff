"""What a learning-rate schedule is: the share of the peak rate (`train.lr`) that an update takes.

A schedule is a pure function of the step, so a run resumes at any step without state. One that asks for `max_steps`
falls towards it, and a run of it cannot become longer; any other can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from workbench.options.bounds import Count, Warmup


class LearningRateSchedule(ABC):
    """Called with the number of an update (from 0), it gives the share of the peak, 0 or more.

    `warmup_steps` is the number of updates in which it rises. A recipe may state it as a share of `train.max_steps`
    (0.1); a schedule is given the number that this comes to (`in_steps`).
    """

    warmup_steps: int = 0

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The share of update `step`."""


def is_share(warmup_steps: object) -> bool:
    """Whether a warm-up is a share of the run, and no number of updates."""
    return isinstance(warmup_steps, float) and 0 < warmup_steps < 1


def in_steps(warmup_steps: float, max_steps: int) -> int:
    """The updates that a share of `max_steps` comes to: the nearest number, and one less than all at most."""
    return min(round(warmup_steps * max_steps), max_steps - 1)


class Warmed(LearningRateSchedule):
    """A schedule that begins with a linear warm-up: 1 / n, 2 / n, ..., 1 in the first n = `warmup_steps` updates."""

    def __init__(self, warmup_steps: Warmup = 0) -> None:
        self.warmup_steps = int(warmup_steps)

    def __call__(self, step: int) -> float:
        return (step + 1) / self.warmup_steps if step < self.warmup_steps else self.after_warmup(step)

    @abstractmethod
    def after_warmup(self, step: int) -> float:
        """The share of update `step`, which is `warmup_steps` or later."""


class Falling(Warmed):
    """A warm-up, then a fall that ends at `max_steps`."""

    def __init__(self, max_steps: Count, warmup_steps: Warmup = 0) -> None:
        super().__init__(warmup_steps)
        self.max_steps = max_steps

    def progress(self, step: int) -> float:
        """How much of the time from the end of the warm-up to `max_steps` has passed, 0 to 1."""
        return min(1.0, (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps))
