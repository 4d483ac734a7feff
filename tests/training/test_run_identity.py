"""A run folder knows whose checkpoints it holds, and that it had some."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import workbench
from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoint import read_state
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import read_data
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import DATA
from workbench.training.pretrain import pretrain


def identity(run: Path, step: int) -> str:
    return str(read_state(run / "checkpoints" / f"step-{step}")["run"])


def test_a_checkpoint_of_another_run_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    other = pretrain(replace(recipe, seed=7), tmp_path / "other", until=2)
    foreign = run / "checkpoints" / "step-2"
    shutil.copytree(other / "checkpoints" / "step-2", foreign)
    reported = (
        rf"step-2 is a checkpoint of run {identity(other, 2)}, but {run} is run {identity(run, 1)} .*Move it away"
    )
    for use in (lambda: pretrain(recipe, run, until=3), lambda: workbench.load(run)):
        with pytest.raises(WorkbenchError, match=reported):
            use()
    assert Checkpoints(run).steps() == [1, 2]
    shutil.rmtree(foreign)
    pretrain(recipe, run, until=2)
    workbench.load(run)


def test_the_record_has_the_id_of_the_checkpoints(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    for step in (1, 2):
        pretrain(recipe, run, until=step)
        assert (read_data(run) or {})["run"] == identity(run, step) == identity(run, 1)
    (run / DATA).unlink()  # as whoever continues with other data does
    pretrain(recipe, run, until=3)
    assert (read_data(run) or {})["run"] == identity(run, 3) == identity(run, 2)


@pytest.mark.parametrize("emptied", [False, True])
def test_lost_checkpoints_are_no_new_run(recipe: Recipe, tmp_path: Path, emptied: bool) -> None:
    run = pretrain(recipe, tmp_path / "run", until=3)
    before = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints")
    if emptied:
        (run / "checkpoints").mkdir()
    for changed in (recipe, replace(recipe, seed=7)):
        with pytest.raises(
            WorkbenchError, match=r"saved checkpoints \(metrics.jsonl reaches step 3\), but there is none"
        ):
            pretrain(changed, run)
    assert (run / "metrics.jsonl").read_bytes() == before
    (run / DATA).unlink()
    pretrain(recipe, run, until=2)
    assert [record["step"] for record in read_metrics(run)] == [1, 2]


@pytest.mark.parametrize("moment", ["start", "finish"])
def test_a_run_that_ended_before_its_first_checkpoint_begins_again(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, tmp_path / "run", until=3)
    assert [record["step"] for record in read_metrics(tmp_path / "run")] == [1, 2, 3]
    pretrain(recipe, tmp_path / "run", until=2)
    assert Checkpoints(tmp_path / "run").steps() == [2]
