"""A plan is made without touching anything, and says what a run is going to be."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.short_runs import losses, shorter
from workbench.cli.training import pretrain as command
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.training.plan import check
from workbench.training.preamble import Preamble
from workbench.training.pretrain import pretrain

Change = Callable[[dict[str, Any]], Any]


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What lies in a folder: the time of change and the bytes of each file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def nothing_is_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_folder: Path) -> Any:
    """No process, no connection; and no file of the inputs and the runs is another one afterwards."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a plan starts no process and opens no connection")

    def compared(make: Callable[[], Any]) -> Any:
        for module, name in ((os, "fork"), (subprocess, "Popen"), (socket, "socket")):
            monkeypatch.setattr(module, name, refused)
        before = [everything(folder) for folder in (tmp_path, world_folder)]
        folders = sorted(path for path in tmp_path.rglob("*") if path.is_dir())
        try:
            return make()
        finally:
            monkeypatch.undo()
            assert [everything(folder) for folder in (tmp_path, world_folder)] == before
            assert sorted(path for path in tmp_path.rglob("*") if path.is_dir()) == folders

    return compared


def test_a_plan_of_a_new_run(recipe: Recipe, tmp_path: Path, nothing_is_touched: Any) -> None:
    plan = nothing_is_touched(lambda: check(recipe, tmp_path / "run"))
    assert plan.resume.path is None
    assert list(plan.tasks) == list(plan.readers) == ["text"]
    assert plan.held_out == {}
    assert plan.data["read"].keys() == {"corpus", "tokenizer"}
    assert all(parameter.device == torch.device("cpu") for parameter in plan.model.parameters())


def test_a_plan_of_a_run_that_resumes(recipe: Recipe, tmp_path: Path, nothing_is_touched: Any) -> None:
    run = pretrain(recipe, tmp_path / "run", until=3)
    plan = nothing_is_touched(lambda: check(recipe, run))
    assert (plan.resume.step, plan.resume.path) == (3, run / "checkpoints" / "step-3")
    whole = pretrain(recipe, tmp_path / "whole", until=5)
    pretrain(recipe, run, until=5)
    assert losses(run) == losses(whole)


def test_a_dry_run_shows_the_plan(
    make_recipe: Any, tmp_path: Path, nothing_is_touched: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = make_recipe(), tmp_path / "run"
    nothing_is_touched(lambda: command(str(path), run=run, dry_run=True, trust=True))
    said = capsys.readouterr()
    assert " ".join(said.out.split()).startswith(f"{run} can start;")
    assert f"run              {run}: new, up to step 20" in said.err
    assert "expected memory  weights, gradients and moments take" in said.err
    pretrain(load_recipe(str(path), trust=True), run, until=2)
    nothing_is_touched(lambda: command(str(path), run=run, dry_run=True, trust=True))
    assert "can resume from step 2;" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("parallel", "found"),
    [
        ({"shard": "full"}, "nothing is sharded: there is one rank, so shard = full has no effect"),
        ({"offload": True}, "offload has no effect without shards"),
        ({}, ""),
    ],
)
def test_what_has_no_effect_on_one_process_is_said(
    make_recipe: Any, tmp_path: Path, parallel: dict[str, Any], found: str
) -> None:
    recipe = load_recipe(str(make_recipe(lambda tree: tree["train"].update(parallel=parallel))))
    about = Preamble(check(recipe, tmp_path / "run"), 0, 1, None).facts()
    assert about.get("parallel", "") == found


def test_a_task_that_starts_after_the_last_step_is_said(make_recipe: Any, tmp_path: Path) -> None:
    def staged(tree: dict[str, Any]) -> None:
        tree["tasks"]["later"] = {**tree["tasks"]["text"], "start_step": 20}
        tree["schedule"] = "staged"

    plan = check(load_recipe(str(make_recipe(staged))), tmp_path / "run")
    facts = Preamble(plan, 0, 20, None).facts()
    assert facts["task later"].startswith("not trained, as it starts at step 20 and the run ends at step 20; ")
    assert "not trained" not in facts["task text"]


def test_held_out_corpora_that_are_never_evaluated_are_said(
    make_recipe: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def held_out(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = tree["tasks"]["text"]["corpora"]

    path, never = make_recipe(held_out), "tasks.text.held_out is never evaluated, as train.evaluate_every is 0"
    check(load_recipe(str(path)), tmp_path / "run")
    assert never in caplog.text
    caplog.clear()
    check(load_recipe(str(path), ["train.evaluate_every=20"]), tmp_path / "run")
    assert never not in caplog.text


REFUSED: dict[str, tuple[Change, str]] = {
    "no corpus": (lambda t: t["tasks"]["text"].update(corpora=["nowhere"]), "nowhere"),
    "no tokenizer": (lambda t: t.update(tokenizer="nowhere.json"), "nowhere.json"),
    "a warm-up without an end": (lambda t: t["train"]["lr_schedule"].update(warmup_steps=50), "does not end before"),
    "positions": (lambda t: t["model"]["streams"]["text"].update(max_positions=8), "is more than the 8 positions"),
    "nothing to train": (lambda t: t["train"].update(freeze=["*"]), "leaves nothing to train"),
    "an optimizer's option": (lambda t: t["train"].update(optimizer={"optimizer": "adamw", "betas": [2, 2]}), "betas"),
    "weights": (lambda t: t["model"].update(init_from="nowhere"), "there is no such file or folder"),
    "a control": (lambda t: t.update(control="no-kg"), "no-kg"),
    "too few processes": (
        lambda t: t["train"].update(parallel={"tensor": 2}),
        "start a multiple of 2, as by: torchrun --nproc-per-node 2 -m workbench pretrain",
    ),
    "no held-out corpora": (lambda t: t["train"].update(evaluate_every=2), "no task names held-out corpora"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_no_trace(name: str, make_recipe: Any, tmp_path: Path, nothing_is_touched: Any) -> None:
    """And `pretrain` refuses it in the same words."""
    change, reported = REFUSED[name]
    recipe = load_recipe(str(make_recipe(change)))
    with pytest.raises(WorkbenchError, match=reported) as planned:
        nothing_is_touched(lambda: check(recipe, tmp_path / "run"))
    with pytest.raises(WorkbenchError) as started:
        pretrain(recipe, tmp_path / "run")
    assert str(started.value) == str(planned.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_is_looked_at_and_left_alone(recipe: Recipe, tmp_path: Path, nothing_is_touched: Any) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    other = shorter(recipe, lr=0.5)
    with pytest.raises(WorkbenchError, match="holds a run with other values"):
        nothing_is_touched(lambda: check(other, run))
    (run / "checkpoints" / "step-1" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(WorkbenchError, match=r"no checkpoint of .* is whole"):
        nothing_is_touched(lambda: check(recipe, run))
    with pytest.raises(WorkbenchError, match="but must be a folder"):
        check(recipe, tmp_path / "tiny.yaml")


def test_a_damaged_checkpoint_is_put_aside_by_who_resumes(
    recipe: Recipe, tmp_path: Path, nothing_is_touched: Any
) -> None:
    run = pretrain(recipe, tmp_path / "run", until=5)
    pretrain(recipe, run, until=6)
    (run / "checkpoints" / "step-6" / "model.safetensors").write_bytes(b"cut off")
    plan = nothing_is_touched(lambda: check(recipe, run))
    assert plan.resume.step == 5
    assert [path.name for path in plan.resume.damaged] == ["step-6"]
    pretrain(replace(recipe), run, until=7)
    assert (run / "checkpoints" / "damaged-step-6").is_dir()
