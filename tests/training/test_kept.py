"""What a run does not train is in none of its checkpoints, and must be what it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoint import kept_of
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import read_data
from workbench.runs.names import FROZEN, MODEL
from workbench.runs.weights import read_weights, save_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify import verify_resume

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
    return workbench.load(run).model.network("teacher").state_dict()


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


def test_a_network_from_a_run_stays_there(
    make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = pretrain(load_recipe(str(make_recipe(name="base"))), tmp_path / "base", until=2)
    recipe = load_recipe(str(make_recipe(lambda tree: with_a_teacher(tree, base))))
    run = pretrain(recipe, tmp_path / "run", until=2)
    kept = kept_of(last(run))
    assert kept is not None
    assert Path(kept.file) == (last(base) / MODEL).resolve()
    assert not (run / FROZEN).exists()
    weights = read_weights(last(base) / MODEL)
    for name, tensor in teacher_of(run).items():
        assert torch.equal(tensor, weights[f"networks.main.{name}"])
    save_weights(last(base) / MODEL, {name: tensor + 1 for name, tensor in weights.items()})
    with pytest.raises(
        WorkbenchError, match=r"trained on other data:\n  base .*: other content\nRestore it.*--accept-cha"
    ):
        pretrain(recipe, run)
    assert AS_IF_NOT not in capfd.readouterr().err
    with pytest.raises(
        WorkbenchError, match=r"the base at .* is not the one that .* was trained with.*--accept-changes"
    ):
        workbench.load(run)
    (last(base) / MODEL).unlink()
    for use in (lambda: pretrain(recipe, run, accept_changes=True), lambda: workbench.load(run)):
        with pytest.raises(
            WorkbenchError, match=r"weights that it doesn't change.* this file is not there.*Restore it"
        ):
            use()


def test_a_network_that_was_trained_on_where_it_came_from_is_told(
    make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run then reads the checkpoint that it started from, which is the same: nothing changed for it."""
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
    make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = pretrain(load_recipe(str(make_recipe(name="base"))), tmp_path / "base", until=2)
    recipe = load_recipe(str(make_recipe(lambda tree: with_a_teacher(tree, base))))
    run = pretrain(recipe, tmp_path / "run", until=2)
    changed = {name: tensor + 1 for name, tensor in read_weights(last(base) / MODEL).items()}
    save_weights(last(base) / MODEL, changed)
    pretrain(recipe, run, until=3, accept_changes=True)
    assert AS_IF_NOT not in capfd.readouterr().err
    for name, tensor in teacher_of(run).items():
        assert torch.equal(tensor, changed[f"networks.main.{name}"])
    record = read_data(run)
    assert record is not None
    (accepted,) = record["accepted"]
    assert accepted["step"] == 2
    assert accepted["changes"] == [f"base {(last(base) / MODEL).resolve()}: other content"]
    pretrain(recipe, run)
    save_weights(last(base) / MODEL, {name: t for name, t in changed.items() if "layers.0" not in name})
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
