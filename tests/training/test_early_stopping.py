"""Early stopping: which passes count, and that a run stops at the same step after a kill and on other ranks."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.short_runs import shorter
from tests.training.test_ranks import free_port
from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import StopSpec
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training.early_stopping import EarlyStopping
from workbench.training.pretrain import pretrain

NAN = float("nan")


@pytest.mark.parametrize(
    ("metric", "values", "stops_at"),
    [
        ("mlm/loss", [3.0, 2.0, 1.95, 1.92, 1.0], 4),  # less than 0.1 better than 2.0, twice
        ("mlm/loss", [3.0, 2.5, 2.45, 2.35, 2.3, 2.3], 6),  # 2.35 is more than 0.1 below 2.5
        ("held_out/mlm/accuracy", [0.1, 0.5, 0.55, 0.59], 4),  # larger is better
        ("mlm/loss", [NAN, NAN], 2),
        ("mlm/loss", [3.0, NAN, 2.0, NAN, float("-inf")], 5),
    ],
)
def test_passes_without_an_improvement_are_counted(metric: str, values: list[float], stops_at: int) -> None:
    spec, found, state = StopSpec(metric, patience=2, min_delta=0.1), 0, None
    for number, value in enumerate(values, 1):
        early = EarlyStopping(spec)
        early.load(json.loads(json.dumps(state, allow_nan=False)))  # as after a kill
        early.add({f"held_out/{metric.removeprefix('held_out/')}": value})
        state = early.state()
        if early.reason and not found:
            found = number
    assert found == stops_at


def test_another_metric_or_a_larger_patience_trains_on() -> None:
    early = EarlyStopping(StopSpec("mlm/loss", patience=1))
    for _ in range(2):
        early.add({"held_out/mlm/loss": 1.0})
    assert early.reason.startswith("train.stop: mlm/loss was best at 1 and did not improve in 1 held-out")
    for changed in (StopSpec("mlm/accuracy", patience=1), StopSpec("mlm/loss", patience=2), None):
        other = EarlyStopping(changed)
        other.load(early.state())
        assert not other.reason


def _stopping(recipe: Recipe, world_folder: Path, metric: str = "mlm/loss") -> Recipe:
    """A run that stops after step 6: its second and third pass are no better than the first by 100."""
    text = replace(recipe.tasks["text"], held_out=[str(world_folder / "held-out")])
    stop = StopSpec(metric, patience=2, min_delta=100.0)
    train = {"max_steps": 8, "save_every": 0, "evaluate_every": 2, "stop": stop}
    return replace(shorter(recipe, **train), tasks={"text": text})


def _resume(rank: int, port: int, recipe: Recipe, run: Path) -> None:
    address = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ.update(address, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    pretrain(recipe, run)


@pytest.mark.long
def test_a_run_stops_at_the_same_step_after_a_restart_on_two_ranks(
    recipe: Recipe, world_folder: Path, tmp_path: Path
) -> None:
    stopping, port, fork = _stopping(recipe, world_folder), free_port(), multiprocessing.get_context("fork")
    run = pretrain(stopping, tmp_path / "run", until=5)
    ranks = [fork.Process(target=_resume, args=(rank, port, stopping, run)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert Checkpoints(run).steps() == [5, 6]
    assert json.loads((run / "status.json").read_text())["reason"].startswith("train.stop: mlm/loss was best at")


def test_a_run_that_stopped_says_so_and_trains_on_if_asked(recipe: Recipe, world_folder: Path, tmp_path: Path) -> None:
    stopping = _stopping(recipe, world_folder)
    run = pretrain(stopping, tmp_path / "run")
    pretrain(stopping, run)
    log = (run / "log.txt").read_text()
    assert "the run ends early, after step 6: train.stop: mlm/loss was best at" in log
    assert "the run ended early at step 6 (train.stop: mlm/loss" in log
    assert "raise train.stop.patience, or set train.stop=null" in log
    assert Checkpoints(run).steps() == [6]
    pretrain(replace(stopping, train=replace(stopping.train, stop=None)), run)
    assert Checkpoints(run).steps() == [6, 8]
    assert [record["step"] for record in read_metrics(run) if "mlm/loss" in record] == list(range(1, 9))


def test_a_wrong_metric_and_a_run_without_passes_are_refused(
    recipe: Recipe, world_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorkbenchError, match=r"unknown metric 'held_out/mlm/los' in train\.stop\.metric"):
        pretrain(_stopping(recipe, world_folder, "mlm/los"), tmp_path / "run")
    without = replace(recipe, train=replace(recipe.train, stop=StopSpec("mlm/loss")))
    with pytest.raises(WorkbenchError, match=r"train\.stop\.metric = 'mlm/loss' follows a held-out metric"):
        pretrain(without, tmp_path / "other")
