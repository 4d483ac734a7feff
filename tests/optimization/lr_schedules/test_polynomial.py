"""The schedule `polynomial`: a warm-up, and a power of the share that is left."""

from __future__ import annotations

from tests.contracts.cases import ScheduleCase
from tests.optimization.lr_schedules.test_constant import WARM_UP

CASE = ScheduleCase({"warmup_steps": 4}, rates=(*WARM_UP, *(2 * (1 - n / 8) ** 3 for n in range(8))))
