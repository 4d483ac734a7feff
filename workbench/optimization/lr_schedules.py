"""Learning-rate schedules: the share of the peak rate (`train.lr`) for each update.

A schedule is a pure function of the step, so a run resumes at any step without state. One that uses `max_steps` falls
towards it, and a run with it cannot be extended; any other can.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Gt, Le

from workbench.components.build_context import named
from workbench.components.building import build, checked, named_by
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Number, PartShare, Positive, SomeShare, Warmup
from workbench.core.options.values import check
from workbench.recipe.train_spec import TrainSpec


class LearningRateSchedule(ABC):
    """Base of the schedules: called with the number of an update (from 0), returns the share of the peak, 0 or more.

    `warmup_steps` is the number of updates in which it rises. A recipe may state it as a share of `train.max_steps`
    (0.1); a schedule gets the number of updates (`in_steps`).
    """

    warmup_steps: int = 0

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The share of update `step`."""


def is_share(warmup_steps: object) -> bool:
    """Whether a warm-up is a share of the run, and no number of updates."""
    return isinstance(warmup_steps, float) and 0 < warmup_steps < 1


def in_steps(warmup_steps: float, max_steps: int) -> int:
    """The updates of a share of `max_steps`: the nearest number, and at most one less than all."""
    return min(round(warmup_steps * max_steps), max_steps - 1)


class WarmupSchedule(LearningRateSchedule):
    """A schedule that begins with a linear warm-up: 1 / n, 2 / n, ..., 1 in the first n = `warmup_steps` updates."""

    def __init__(self, warmup_steps: Warmup = 0) -> None:
        self.warmup_steps = int(warmup_steps)

    def __call__(self, step: int) -> float:
        return (step + 1) / self.warmup_steps if step < self.warmup_steps else self.after_warmup(step)

    @abstractmethod
    def after_warmup(self, step: int) -> float:
        """The share of update `step`, which is `warmup_steps` or later."""


class DecaySchedule(WarmupSchedule):
    """A warm-up, then a fall that ends at `max_steps`."""

    def __init__(self, max_steps: Count, warmup_steps: Warmup = 0) -> None:
        super().__init__(warmup_steps)
        self.max_steps = max_steps

    def progress(self, step: int) -> float:
        """The share of the time from the end of the warm-up to `max_steps` that has passed, 0 to 1."""
        return min(1.0, (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps))


class ConstantSchedule(WarmupSchedule):
    """Constant learning rate after `warmup_steps`. The run can be extended."""

    def after_warmup(self, step: int) -> float:
        return 1.0


class LinearSchedule(DecaySchedule):
    """Linear decay after a warm-up (BERT, arXiv:1810.04805): from the peak at the end of `warmup_steps` to 0 at
    `max_steps`."""

    def after_warmup(self, step: int) -> float:
        return 1 - self.progress(step)


class PolynomialSchedule(DecaySchedule):
    """Polynomial decay after a warm-up (Longformer, arXiv:2004.05150, section 5): (1 - progress)^`power`, from the peak
    at the end of `warmup_steps` to 0 at `max_steps`."""

    def __init__(self, max_steps: Count, warmup_steps: Warmup = 0, power: Positive = 3.0) -> None:
        super().__init__(max_steps, warmup_steps)
        self.power = power

    def after_warmup(self, step: int) -> float:
        return float((1 - self.progress(step)) ** self.power)


class CosineSchedule(DecaySchedule):
    """Cosine decay after a warm-up (Loshchilov and Hutter, arXiv:1608.03983, without restarts): from the peak at the
    end of `warmup_steps` to 0 at `max_steps`."""

    def after_warmup(self, step: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * self.progress(step)))


class InverseSqrtSchedule(WarmupSchedule):
    """Inverse square root decay (Vaswani et al., arXiv:1706.03762, section 5.3; T5, arXiv:1910.10683): sqrt(k / max(n,
    k)) at the n-th update (n from 1), times the warm-up's share. The run can be extended.

    The Transformer rises for its `warmup_steps` and falls from there. T5 has no warm-up and stays at its peak for the
    first `timescale: 10000` updates (`lr: 0.01`, that is 1 / sqrt(10000)).

    Args:
        timescale: k; by default `warmup_steps`, or 1 without any.
    """

    def __init__(self, warmup_steps: Warmup = 0, timescale: Count | None = None) -> None:
        super().__init__(warmup_steps)
        self.timescale = timescale or max(1, self.warmup_steps)

    def after_warmup(self, step: int) -> float:
        return math.sqrt(self.timescale / max(step + 1, self.timescale))


Ratio = Annotated[Number, Gt(1), Le(1e6)]


class SlantedTriangularSchedule(LearningRateSchedule):
    """Slanted triangular schedule (Howard and Ruder, arXiv:1801.06146, equation 3): a short linear rise from 1 /
    `ratio` of the peak, then a long linear decay back to it.

    Args:
        rising: the paper's cut_frac, the share of `max_steps` in which it rises.
        ratio: how much smaller the lowest rate is than the peak.
    """

    def __init__(self, max_steps: Count, rising: PartShare = 0.1, ratio: Ratio = 32.0) -> None:
        self.max_steps, self.ratio = max_steps, ratio
        self.warmup_steps = int(max_steps * rising)

    def __call__(self, step: int) -> float:
        cut = self.warmup_steps
        share = step / cut if step < cut else 1 - (step - cut) / (self.max_steps - cut)
        return (1 + max(0.0, share) * (self.ratio - 1)) / self.ratio


class WsdSchedule(DecaySchedule):
    """Warm-up, stable, decay (WSD; Hu et al., arXiv:2404.06395, section 4): the peak after `warmup_steps`, then a decay
    to 0 at `max_steps`.

    Args:
        decay: the share of `max_steps` in which it falls (the paper: a tenth is enough).
        shape: of the fall: `linear`, or `sqrt`: 1 - the root of the share of it that has passed (Hägele et al.,
            arXiv:2405.18392, section 4), which is faster at first.
    """

    def __init__(
        self,
        max_steps: Count,
        warmup_steps: Warmup = 0,
        decay: SomeShare = 0.1,
        shape: Literal["linear", "sqrt"] = "linear",
    ) -> None:
        super().__init__(max_steps, warmup_steps)
        self.shape = shape
        self.falling = max(1.0, max_steps * decay)
        if max_steps - self.falling < warmup_steps:
            raise WorkbenchError(
                f"decay = {decay} of {max_steps} steps begins before the {warmup_steps} warmup_steps end; lower one"
            )

    def after_warmup(self, step: int) -> float:
        left = min(1.0, max(0, self.max_steps - step) / self.falling)
        return left if self.shape == "linear" else 1 - math.sqrt(1 - left)


def make_lr_schedule(spec: TrainSpec) -> LearningRateSchedule:
    """The schedule of `train.lr_schedule`.

    Raises:
        WorkbenchError: an option that does not fit, or a warm-up that does not end in time.
    """
    refuse_given("lr_schedule", spec.lr_schedule, {"max_steps": "train.max_steps"})
    options, share = dict(spec.lr_schedule), spec.lr_schedule.get("warmup_steps")
    part, stated, where = named_by("lr_schedule", options, "train.lr_schedule")
    if isinstance(share, str | float):  # YAML reads 1e-1 as text
        share = checked(part, stated, where, {"max_steps": spec.max_steps})["warmup_steps"]
        options["warmup_steps"] = in_steps(share, spec.max_steps) if is_share(share) else share
    schedule: LearningRateSchedule = build("lr_schedule", options, "train.lr_schedule", max_steps=spec.max_steps)
    check(CountOrZero, schedule.warmup_steps, f"{named(schedule)}: warmup_steps")
    if schedule.warmup_steps >= spec.max_steps:
        raise WorkbenchError(
            f"train.lr_schedule: warmup_steps = {schedule.warmup_steps} does not end before train.max_steps = "
            f"{spec.max_steps}; allowed: 0 to {spec.max_steps - 1}. For a short trial set a share of the steps, for "
            "example train.lr_schedule.warmup_steps=0.1, or 0"
        )
    return schedule


def refuse_given(kind: str, options: Mapping[str, Any], instead: Mapping[str, str]) -> None:
    """Refuse options that the training loop sets: each has one place in a recipe."""
    for name in instead.keys() & options.keys():
        raise WorkbenchError(f"train.{kind}: {name} is set by the run; state it in {instead[name]}")
