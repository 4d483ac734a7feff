"""Slanted triangular rates (Howard & Ruder 2018, ULMFiT, arXiv:1801.06146, equation 3)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from workbench.optimization.lr_schedule import LearningRateSchedule
from workbench.options.bounds import Count, Number, PartShare

Ratio = Annotated[Number, Gt(1), Le(1e6)]


class SlantedTriangular(LearningRateSchedule):
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
