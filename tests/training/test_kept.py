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
from workbench.runs.names import FROZEN, MODEL
from workbench.runs.weights import read_weights, save_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify import verify_resume

MakeRecipe = Callable[..., Path]


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


def test_a_network_from_a_run_stays_there(make_recipe: MakeRecipe, tmp_path: Path) -> None:
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
    for use in (lambda: pretrain(recipe, run), lambda: workbench.load(run)):
        with pytest.raises(WorkbenchError, match=r"frozen weights that lie in .*base.* has changed .*Restore it"):
            use()
    (last(base) / MODEL).unlink()
    with pytest.raises(WorkbenchError, match="this file is not there"):
        workbench.load(run)


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
