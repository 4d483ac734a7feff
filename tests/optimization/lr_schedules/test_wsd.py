"""The schedule `wsd`."""

from __future__ import annotations

from tests.contracts.cases import ScheduleCase

WARM_UP = (0.5, 1.0, 1.5, 2.0)
FALL = tuple(2 * (1 - (n / 4) ** 0.5) for n in (1, 2, 3))
CASES = {
    "": ScheduleCase({"warmup_steps": 4, "decay": 1 / 3}, rates=(*WARM_UP, *[2.0] * 5, 1.5, 1.0, 0.5)),
    "sqrt": ScheduleCase({"warmup_steps": 4, "decay": 1 / 3, "shape": "sqrt"}, rates=(*WARM_UP, *[2.0] * 5, *FALL)),
}
