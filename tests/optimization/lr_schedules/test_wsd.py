"""The schedule `wsd`."""

from __future__ import annotations

from tests.contracts.cases import ScheduleCase

WARM_UP = (0.5, 1.0, 1.5, 2.0)
CASE = ScheduleCase({"warmup_steps": 4, "decay": 1 / 3}, rates=(*WARM_UP, *[2.0] * 5, 1.5, 1.0, 0.5))
