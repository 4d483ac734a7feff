"""Sweeps: which values are tried, and that a killed sweep ends as an undisturbed one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree
from workbench.training import sweep as sweeps
from workbench.training.pretrain import pretrain
from workbench.training.sweep import SweepSettings, TrialResult, sweep
from workbench.training.sweep_space import distributions, read_space

OVER = ["train.lr=1e-4..1e-1", "model.layers[0].num_heads=[1, 2]"]


@pytest.fixture
def settings(recipe: Recipe, world_folder: Path) -> SweepSettings:
    text = replace(recipe.tasks["text"], held_out=[str(world_folder / "held-out")])
    short = shorter(recipe, max_steps=4, evaluate_every=2, save_every=0, trackers=[])
    return SweepSettings(as_tree(replace(short, tasks={"text": text})), OVER, "mlm/loss")


def test_a_space_has_ranges_and_lists() -> None:
    over = ["train.lr=1e-4..1e-3", "train.clip_norm=1.0..2", "train.seed=16..64", "train.optimizer=[adamw, {lr: 1}]"]
    found = distributions(read_space(over))
    expected = [
        optuna.distributions.FloatDistribution(1e-4, 1e-3, log=True),
        optuna.distributions.FloatDistribution(1.0, 2.0),
        optuna.distributions.IntDistribution(16, 64),
        optuna.distributions.CategoricalDistribution([0, 1]),
    ]
    assert list(found.values()) == expected
    assert read_space(over)["train.optimizer"] == ["adamw", {"lr": 1}]


@pytest.mark.parametrize("over", ["train.lr", "train.lr=1", "train.lr=2..1", "train.lr=a..b", "train.lr=[1]"])
def test_no_space_is_refused(over: str) -> None:
    with pytest.raises(WorkbenchError, match=r"allowed: KEY=LOW\.\.HIGH"):
        read_space([over])


def _plain(found: list[TrialResult]) -> list[Any]:
    return [(each.number, each.values, each.state, each.mean) for each in found]


@pytest.mark.long
def test_a_killed_sweep_resumes_and_equals_an_undisturbed_one(
    settings: SweepSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(settings, seeds=2)
    expected = sweep(two, tmp_path / "whole", 2)
    values = [min(losses(Path(run), "held_out/mlm/loss")) for run in expected[0].runs]
    assert expected[0].mean == sum(values) / 2 <= expected[1].mean
    assert {each.values["train.lr"] for each in expected} != {0.01}

    def killed(recipe: Recipe, run: Path, **options: Any) -> Path:
        pretrain(recipe, run, **options, until=3 if run.name == "trial-1-seed-4" else None)
        if run.name == "trial-1-seed-4":
            raise KeyboardInterrupt
        return run

    monkeypatch.setattr(sweeps, "pretrain", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep(two, tmp_path / "killed", 2)
    monkeypatch.setattr(sweeps, "pretrain", pretrain)
    assert _plain(sweep(two, tmp_path / "killed", 2)) == _plain(expected)
    assert "continuing from" in (tmp_path / "killed" / "trial-1-seed-4" / "log.txt").read_text()
    assert len(json.loads((tmp_path / "killed" / "trials.json").read_text())) == 2
    with pytest.raises(WorkbenchError, match=r"holds another sweep; these values differ:\n  seeds: 2 -> 1"):
        sweep(settings, tmp_path / "killed", 2)


def test_a_bad_trial_is_stopped_and_a_failing_one_noted(
    settings: SweepSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda trial: trial.number == 1)

    def failing(recipe: Recipe, run: Path, **options: Any) -> Path:
        if run.name.startswith("trial-2"):
            raise WorkbenchError("the loss is nan")
        return pretrain(recipe, run, **options)

    monkeypatch.setattr(sweeps, "pretrain", failing)
    found = sweep(settings, tmp_path / "sweep", 3)
    assert {each.number: each.state for each in found} == {0: "complete", 1: "pruned", 2: "fail"}
    assert found[0].number == 0
    assert len(losses(tmp_path / "sweep" / "trial-1-seed-3")) == 2, "stopped at its first pass"


def test_what_cannot_be_swept_is_refused_before_a_run(settings: SweepSettings, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"train\.lr = -1"):
        sweep(replace(settings, over=["train.lr=[0.1, -1]"]), tmp_path / "one", 1)
    without = {**settings.recipe, "train": {**settings.recipe["train"], "evaluate_every": 0}}
    with pytest.raises(WorkbenchError, match=r"set held_out corpora in a task and train\.evaluate_every"):
        sweep(replace(settings, recipe=without), tmp_path / "two", 1)
    assert not [*tmp_path.glob("*/trial-*")]
    with pytest.raises(WorkbenchError, match="unknown metric 'held_out/mlm/los'"):
        sweep(replace(settings, metric="mlm/los"), tmp_path / "three", 1)


@pytest.mark.slow
def test_two_trials_at_a_time(settings: SweepSettings, tmp_path: Path) -> None:
    found = sweep(settings, tmp_path / "sweep", 3, jobs=2)
    assert sorted(each.number for each in found) == [0, 1, 2]
    assert all(each.state == "complete" for each in found)
