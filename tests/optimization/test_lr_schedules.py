"""Learning-rate schedules against the formulas of their papers, and what a recipe may say of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from workbench.errors import WorkbenchError
from workbench.optimization.building import learning_rate, make_lr_schedule
from workbench.parts.building import short_names
from workbench.recipe.spec import TrainSpec

STEPS = 12


def spec(name: str, **options: Any) -> TrainSpec:
    return TrainSpec(STEPS, 1, 1, lr=2.0, lr_schedule={"lr_schedule": name, **options})


def rates(name: str, **options: Any) -> list[float]:
    made = spec(name, **options)
    schedule = make_lr_schedule(made)
    return [learning_rate(schedule, made, step) for step in range(STEPS)]


EXPECTED = {
    "linear": [1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25],
    "cosine": [1 + math.cos(math.pi * n / 8) for n in range(1, 8)],
    "constant": [2.0] * 7,
    "inverse_sqrt": [2 * math.sqrt(4 / n) for n in range(6, 13)],
    "wsd": [2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.5],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_rate_warms_up_to_the_peak_and_goes_on(name: str) -> None:
    found = rates(name, warmup_steps=4, **({"decay": 1 / 3} if name == "wsd" else {}))
    first = 2 * math.sqrt(4 / 5) if name == "inverse_sqrt" else 2.0
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, first, *EXPECTED[name]])


def test_the_slanted_triangle_is_that_of_the_paper() -> None:
    found, cut_frac, ratio = rates("slanted_triangular", rising=0.25, ratio=5), 0.25, 5
    cut = math.floor(STEPS * cut_frac)
    for t, rate in enumerate(found):  # equation 3, as printed
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert rate == pytest.approx(2 * (1 + p * (ratio - 1)) / ratio)
    assert found[0] == pytest.approx(0.4)
    assert max(found) == found[3] == 2.0


def test_t5_stays_at_its_peak_and_then_falls() -> None:
    found = rates("inverse_sqrt", timescale=9)
    assert found[:9] == [2.0] * 9
    assert found[11] == pytest.approx(2 * math.sqrt(9 / 12))


def test_every_schedule_has_a_case_and_starts_without_options() -> None:
    assert set(short_names("lr_schedule")) == {*EXPECTED, "slanted_triangular"}
    for name in short_names("lr_schedule"):
        assert all(0 <= rate <= 2 for rate in rates(name))
        one = TrainSpec(1, 1, 1, lr=2.0, lr_schedule={"lr_schedule": name})
        assert 0 < learning_rate(make_lr_schedule(one), one, 0) <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_steps": 12}, r"warmup_steps = 12 does not end before train\.max_steps = 12; allowed: 0 to 11"),
        ({"max_steps": 3}, r"max_steps is given to it; state it in train\.max_steps"),
        ({"rising": 0.1}, "unknown option 'rising'"),
        ({"lr_schedule": "wsd", "warmup_steps": 8, "decay": 0.5}, "begins before the 8 warmup_steps end"),
        ({"lr_schedule": "cosin"}, "'cosine'"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        make_lr_schedule(TrainSpec(STEPS, 1, 1, lr=2.0, lr_schedule={"lr_schedule": "linear", **options}))


def test_a_share_that_is_no_number_is_the_schedules_fault() -> None:
    schedule = make_lr_schedule(spec("constant"))
    schedule.after_warmup = lambda step: float("nan")  # type: ignore[attr-defined]
    with pytest.raises(WorkbenchError, match=r"train\.lr_schedule: lr_schedule 'constant' returned nan; allowed"):
        learning_rate(schedule, spec("constant"), 0)
