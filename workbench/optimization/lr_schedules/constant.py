"""A rate that stays after a warm-up."""

from __future__ import annotations

from workbench.optimization.lr_schedule import Warmed


class Constant(Warmed):
    """Stays at the peak after `warmup_steps`; a run may be made longer."""

    def after_warmup(self, step: int) -> float:
        return 1.0
