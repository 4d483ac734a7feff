"""Inverse square root (Vaswani et al., arXiv:1706.03762, section 5.3; T5, arXiv:1910.10683, section 3.1.2)."""

from __future__ import annotations

import math

from workbench.optimization.lr_schedule import Warmed
from workbench.options.bounds import Count, Warmup


class InverseSqrt(Warmed):
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
