"""Warm-up, stable, decay (Hu et al. 2024, MiniCPM, arXiv:2404.06395, section 4)."""

from __future__ import annotations

import math
from typing import Literal

from workbench.errors import WorkbenchError
from workbench.optimization.lr_schedule import Falling
from workbench.options.bounds import Count, SomeShare, Warmup


class Wsd(Falling):
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
