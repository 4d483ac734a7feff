"""What a recipe may say of its learning-rate schedule, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.optimization.factory import learning_rate
from workbench.optimization.lr_schedules import make_lr_schedule
from workbench.recipe.train_spec import TrainSpec

STEPS = 12


def spec(name: str, **options: Any) -> TrainSpec:
    return TrainSpec(STEPS, 1, 1, lr=2.0, lr_schedule={"lr_schedule": name, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_steps": 12}, r"warmup_steps = 12 does not end before train\.max_steps = 12; allowed: 0 to 11"),
        ({"max_steps": 3}, r"max_steps is set by the run; state it in train\.max_steps"),
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


@pytest.mark.parametrize("name", ["linear", "cosine", "constant", "inverse_sqrt", "wsd"])
@pytest.mark.parametrize(("share", "steps"), [(0.25, 3), (1 / 3, 4), (0.01, 0), (0.99, 11), ("2.5e-1", 3)])
def test_a_warm_up_may_be_a_share_of_the_run(name: str, share: Any, steps: int) -> None:
    more = {"decay": 1 / STEPS} if name == "wsd" else {}
    by_share, by_steps = (make_lr_schedule(spec(name, warmup_steps=each, **more)) for each in (share, steps))
    assert by_share.warmup_steps == steps
    assert [by_share(step) for step in range(STEPS)] == [by_steps(step) for step in range(STEPS)]


@pytest.mark.parametrize("steps", [1, 2, 7, 300, 10**6])
def test_a_share_fits_every_length(steps: int) -> None:
    options = {"lr_schedule": "linear", "warmup_steps": 0.9}
    schedule = make_lr_schedule(TrainSpec(steps, 1, 1, lr=1.0, lr_schedule=options))
    assert schedule.warmup_steps == min(round(0.9 * steps), steps - 1)


@pytest.mark.parametrize("share", [1.0, 1.5, -0.1, "some"])
def test_what_is_neither_a_share_nor_a_number_of_steps_is_refused(share: Any) -> None:
    with pytest.raises(WorkbenchError, match=r"train\.lr_schedule.*warmup_steps"):
        make_lr_schedule(spec("linear", warmup_steps=share))
