"""Linear decay after a warm-up (BERT, arXiv:1810.04805)."""

from __future__ import annotations

from workbench.optimization.lr_schedule import Falling


class Linear(Falling):
    """Linear decay after a warm-up (BERT, arXiv:1810.04805): from the peak at the end of `warmup_steps` to 0 at
    `max_steps`."""

    def after_warmup(self, step: int) -> float:
        return 1 - self.progress(step)
