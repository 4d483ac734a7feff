"""The schedule `cosine`."""

from __future__ import annotations

import math

from tests.contracts.cases import ScheduleCase

WARM_UP = (0.5, 1.0, 1.5, 2.0)
CASE = ScheduleCase({"warmup_steps": 4}, rates=(*WARM_UP, *(1 + math.cos(math.pi * n / 8) for n in range(8))))
