"""The schedule `inverse_sqrt`."""

from __future__ import annotations

import math

from tests.contracts.cases import ScheduleCase

WARM_UP = (0.5, 1.0, 1.5, 2.0)
CASES = {
    "": ScheduleCase({"warmup_steps": 4}, rates=(*WARM_UP, *(2 * math.sqrt(4 / n) for n in range(5, 13)))),
    "as T5": ScheduleCase({"timescale": 9}, rates=(*[2.0] * 9, *(2 * math.sqrt(9 / n) for n in (10, 11, 12)))),
}
