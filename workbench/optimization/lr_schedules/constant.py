"""A rate that stays after a warm-up."""

from __future__ import annotations

from workbench.optimization.lr_schedule import Warmed


class Constant(Warmed):
    """Constant learning rate after `warmup_steps`. The run can be extended."""

    def after_warmup(self, step: int) -> float:
        return 1.0
