"""Contracts of the learning-rate schedules: their papers' rates, and shares of the peak whatever the options."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.case_finder import case_of, cases_of, over
from workbench.optimization.factory import learning_rate
from workbench.optimization.lr_schedules import make_lr_schedule
from workbench.recipe.train_spec import TrainSpec


def rates(name: str, steps: int = 12, **options: Any) -> list[float]:
    """With a peak of 2."""
    schedule = {"lr_schedule": cases_of("lr_schedule")[name].part, **options}
    spec = TrainSpec(steps, 1, 1, lr=2.0, lr_schedule=schedule)
    made = make_lr_schedule(spec)
    return [learning_rate(made, spec, step) for step in range(steps)]


@over("lr_schedule")
def test_a_schedule_follows_its_paper(name: str) -> None:
    case = case_of("lr_schedule", name)
    assert len(case.rates) == 12
    assert rates(name, **case.options) == pytest.approx(case.rates)


@over("lr_schedule")
def test_a_schedule_starts_without_options_and_gives_shares(name: str) -> None:
    assert all(0 <= rate <= 2 for rate in rates(name))
    assert 0 < rates(name, steps=1)[0] <= 2
