"""The schedule `slanted_triangular`: the paper's equation 3, as printed."""

from __future__ import annotations

import math

from tests.contracts.cases import ScheduleCase

STEPS, CUT_FRAC, RATIO = 12, 0.25, 5


def rate(t: int) -> float:
    cut = math.floor(STEPS * CUT_FRAC)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / CUT_FRAC - 1))
    return 2 * (1 + p * (RATIO - 1)) / RATIO


CASE = ScheduleCase({"rising": CUT_FRAC, "ratio": RATIO}, rates=tuple(rate(t) for t in range(STEPS)))
