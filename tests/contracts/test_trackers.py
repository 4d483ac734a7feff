"""Contracts of the trackers: a run that resumes continues its run there, and another run has one of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.case_finder import case_of, cases_of, make
from workbench.training.tracker import TrackedRun

NAMES = [pytest.param(name, marks=[] if "stand-in" in name else pytest.mark.slow) for name in cases_of("tracker")]


def track(name: str, run: TrackedRun, steps: range, failed: bool = False) -> None:
    tracker = make("tracker", name)
    tracker.begin(run)
    for step in steps:
        tracker.log(step, {"mlm/loss": 1 / step, "lr": 0.5})
    tracker.end(failed)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_continues_and_another_is_new(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = case_of("tracker", name).world(tmp_path, monkeypatch)
    (tmp_path / "recipe.yaml").write_text("name: it\n")
    recipe = {
        "train.lr": 0.5,
        "tasks.text.objectives[0].rate": 0.15,
        "control": None,
        **{f"vars.{i}": i for i in range(120)},
    }
    first = TrackedRun("bert-0000", "0" * 32, tmp_path, 0, recipe)
    track(name, first, range(1, 4), failed=True)
    track(name, TrackedRun("bert-0000", "0" * 32, tmp_path, 2, recipe), range(3, 6))
    runs = read()
    assert len(runs) == 1
    values, curves = runs[0]
    assert {str(values[key]) for key in values if key.startswith("train.lr")} == {"0.5"}
    assert len(values) == len(recipe)
    assert {name: dict(points) for name, points in curves.items()} == {
        "mlm/loss": {step: pytest.approx(1 / step) for step in range(1, 6)},
        "lr": dict.fromkeys(range(1, 6), 0.5),
    }
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recipe.yaml").write_text("name: it\n")
    track(name, TrackedRun("bert-1111", "1" * 32, tmp_path / "other", 0, recipe), range(1, 2))
    assert len(read()) == 2
