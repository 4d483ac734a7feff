"""Weights that a run does not train are in none of its checkpoints, and must be unchanged."""

from __future__ import annotations

import copy
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import read_data
from workbench.runs.frozen_weights import read_frozen, save_frozen
from workbench.runs.names import FROZEN, MODEL
from workbench.runs.weights import read_weights, save_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

MakeRecipe = Callable[..., Path]
AS_IF_NOT = "as if they had not"


def with_a_teacher(tree: dict[str, Any], start: Path | None = None) -> None:
    teacher = {**copy.deepcopy(tree["model"]), "frozen": True}
    if start is not None:
        teacher["init_from"] = str(start)
    tree["model"] = {"main": tree["model"], "teacher": teacher}
    tree["train"].update(max_steps=4, save_every=2)


def last(run: Path) -> Path:
    found = Checkpoints(run).latest()
    assert found is not None
    return found


def teacher_of(run: Path) -> dict[str, torch.Tensor]:
    return workbench.load(run).torch.network("teacher").state_dict()


def test_a_frozen_network_is_saved_once(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe(with_a_teacher)))
    assert verify_resume(recipe, tmp_path, steps=4).equal
    run = tmp_path / "interrupted"
    saved = read_weights(last(run) / MODEL)
    assert saved
    assert not [name for name in saved if name.startswith("networks.teacher.")]
    frozen = read_weights(run / FROZEN)
    assert {name.removeprefix("networks.teacher."): t.sum() for name, t in frozen.items()} == {
        name: tensor.sum() for name, tensor in teacher_of(run).items()
    }
    run.rename(tmp_path / "moved")
    assert teacher_of(tmp_path / "moved").keys() == {name.removeprefix("networks.teacher.") for name in frozen}


@pytest.fixture
def started(make_recipe: MakeRecipe, tmp_path: Path) -> tuple[Path, Path, Recipe]:
    """A run, another whose teacher it is, and the other's recipe."""
    base = pretrain(load_recipe(str(make_recipe(name="base"))), tmp_path / "base", until=2)
    recipe = load_recipe(str(make_recipe(lambda tree: with_a_teacher(tree, base))))
    return base, pretrain(recipe, tmp_path / "run", until=2), recipe


def test_a_network_from_a_run_is_linked(started: tuple[Path, Path, Recipe]) -> None:
    base, run, _ = started
    assert (run / FROZEN).samefile(last(base) / MODEL)
    weights = read_weights(last(base) / MODEL)
    for name, tensor in teacher_of(run).items():
        assert torch.equal(tensor, weights[f"networks.main.{name}"])
    mode = (last(base) / MODEL).stat().st_mode
    assert mode == (last(run) / MODEL).stat().st_mode


def test_the_run_it_started_from_may_train_on_and_go(started: tuple[Path, Path, Recipe]) -> None:
    base, run, recipe = started
    teacher = {name: tensor.clone() for name, tensor in teacher_of(run).items()}
    shutil.rmtree(base)
    assert all(torch.equal(tensor, teacher[name]) for name, tensor in teacher_of(run).items())
    pretrain(recipe, run)
    assert Checkpoints(run).steps()[-1] == 4
    assert all(torch.equal(tensor, teacher[name]) for name, tensor in teacher_of(run).items())


def test_a_folder_of_runs_moves(started: tuple[Path, Path, Recipe], tmp_path: Path) -> None:
    base, run, recipe = started
    project = tmp_path / "project"
    project.mkdir()
    for one in (base, run):
        one.rename(project / one.name)
    shutil.copytree(project / "run", tmp_path / "copied")
    for moved in (project / "run", tmp_path / "copied"):
        assert teacher_of(moved)
        pretrain(recipe, moved)


def test_where_no_link_can_be_made_the_weights_are_written(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    base = pretrain(load_recipe(str(make_recipe(name="base"))), tmp_path / "base", until=2)
    monkeypatch.setattr("workbench.runs.frozen_weights.os.link", refused)
    recipe = load_recipe(str(make_recipe(lambda tree: with_a_teacher(tree, base))))
    run = pretrain(recipe, tmp_path / "run", until=2)
    frozen = read_weights(run / FROZEN)
    assert frozen.keys() == {f"networks.teacher.{name}" for name in teacher_of(run)}


def test_a_start_that_was_killed_is_made_anew(tmp_path: Path) -> None:
    """Whatever is left of it: a link to the file, a link to one that does not fit, or a file of its own."""
    weights, other = {"networks.main.a": torch.ones(2)}, {"networks.main.a": torch.zeros(2)}
    for name, tensors in (("fits", weights), ("other", other)):
        save_weights(tmp_path / name, tensors)
    run = tmp_path / "run"
    run.mkdir()
    tensors = {"networks.teacher.a": torch.ones(2)}
    for left in ("fits", "other", None):
        for sources in (["other", "fits"], ["gone", "fits"], ["other"], []):
            (run / FROZEN).unlink(missing_ok=True)
            if left:
                os.link(tmp_path / left, run / FROZEN)
            kept = save_frozen(run, tensors, [tmp_path / source for source in sources])
            assert read_frozen(run, kept)["networks.teacher.a"].equal(torch.ones(2))
            assert [path.name for path in run.iterdir()] == [FROZEN]
            assert (run / FROZEN).samefile(tmp_path / "fits") == ("fits" in sources)
    assert read_weights(tmp_path / "other")["networks.main.a"].equal(torch.zeros(2))


def test_changed_weights_are_refused(started: tuple[Path, Path, Recipe], capfd: pytest.CaptureFixture[str]) -> None:
    _, run, recipe = started
    save_weights(run / FROZEN, {name: tensor + 1 for name, tensor in read_weights(run / FROZEN).items()})
    with pytest.raises(
        WorkbenchError,
        match=r"on other data:\n  base frozen\.safetensors: other content\nRestore it.*--accept-cha",
    ):
        pretrain(recipe, run)
    assert AS_IF_NOT not in capfd.readouterr().err
    with pytest.raises(
        WorkbenchError, match=r"the base at .* is not the one that .* was trained with.*--accept-changes"
    ):
        workbench.load(run)
    (run / FROZEN).unlink()
    for use in (lambda: pretrain(recipe, run, accept_changes=True), lambda: workbench.load(run)):
        with pytest.raises(WorkbenchError, match=r"frozen\.safetensors is not there: .*Restore it"):
            use()


def test_a_network_that_was_trained_on_where_it_came_from_is_reported(
    make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run then has the weights that it started from: nothing changed for it."""
    start = load_recipe(str(make_recipe(lambda tree: tree["train"].update(max_steps=4, save_every=2), name="base")))
    base = pretrain(start, tmp_path / "base", until=2)
    recipe = load_recipe(str(make_recipe(lambda tree: with_a_teacher(tree, base))))
    run = pretrain(recipe, tmp_path / "run", until=2)
    pretrain(start, base)
    pretrain(recipe, run, until=3)
    said = capfd.readouterr().err
    assert f"the weights at {base} have changed" in said
    assert AS_IF_NOT in said


def test_other_weights_are_taken_knowingly(
    started: tuple[Path, Path, Recipe], capfd: pytest.CaptureFixture[str]
) -> None:
    _, run, recipe = started
    changed = {name: tensor + 1 for name, tensor in read_weights(run / FROZEN).items()}
    save_weights(run / FROZEN, changed)
    pretrain(recipe, run, until=3, accept_changes=True)
    assert AS_IF_NOT not in capfd.readouterr().err
    for name, tensor in teacher_of(run).items():
        assert torch.equal(tensor, changed[f"networks.main.{name}"])
    record = read_data(run)
    assert record is not None
    (accepted,) = record["accepted"]
    assert accepted["step"] == 2
    assert accepted["changes"] == [f"base {FROZEN}: other content"]
    pretrain(recipe, run)
    save_weights(run / FROZEN, {name: t for name, t in changed.items() if "layers.0" not in name})
    with pytest.raises(WorkbenchError, match=r"lacks \d+ of the weights that .* takes from it .*another model"):
        pretrain(recipe, run, accept_changes=True)


def test_what_is_trained_too_is_saved(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    def tied(tree: dict[str, Any]) -> None:
        with_a_teacher(tree)
        tree["model"]["momentum"] = {"follows": "main", "decay": 0.9}
        tree["model"]["main"]["tie"] = {"text.token": "teacher.text.token"}

    run = pretrain(load_recipe(str(make_recipe(tied))), tmp_path / "run", until=2)
    saved = set(read_weights(last(run) / MODEL))
    assert "networks.teacher.embeddings.text.token.weight" in saved
    assert "networks.momentum.layers.0.attention.residual.norm.weight" in saved
    assert "networks.teacher.layers.0.attention.residual.norm.weight" not in saved
