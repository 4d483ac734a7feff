"""Cosine decay after a warm-up (Loshchilov & Hutter, arXiv:1608.03983, without restarts; GPT, CLIP)."""

from __future__ import annotations

import math

from workbench.optimization.lr_schedule import Falling


class Cosine(Falling):
    """Cosine decay after a warm-up (Loshchilov and Hutter, arXiv:1608.03983, without restarts): from the peak at the
    end of `warmup_steps` to 0 at `max_steps`."""

    def after_warmup(self, step: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * self.progress(step)))
