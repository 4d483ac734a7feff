"""Held-out losses of a run, and the best of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.training.pretrain import pretrain


def test_evaluating_on_nothing_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="evaluate_every = 2, but no task names held-out corpora"):
        pretrain(shorter(recipe, max_steps=4, evaluate_every=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_held_out_losses_and_best(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=12, evaluate_every=4, best="mlm/loss", lr=0.02)

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    values = losses(run, "held_out/mlm/loss")
    assert len(values) == 3
    assert values[-1] < values[0]
    assert (run / "best" / "model.safetensors").is_file()
    loaded = workbench.load(run)
    assert loaded.recipe.train.best == "mlm/loss"


def test_a_limited_evaluation_says_how_much_it_reads(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=2, lr_schedule="linear", evaluate_every=1, evaluate_steps=1)

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    assert "tasks.text: held-out losses read 12 of 32 items (train.evaluate_steps: " in (run / "log.txt").read_text()


def test_held_out_corruption_is_the_same_every_time(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=4, evaluate_every=1, lr=1e-30, lr_schedule="linear")

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    values = losses(run, "held_out/mlm/loss")
    assert len(values) == 4
    assert len(set(values)) == 1


def test_best_names_a_metric_that_exists(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=1, lr_schedule="linear", evaluate_every=1, best="mlm/los")

    with pytest.raises(WorkbenchError, match="Did you mean 'held_out/mlm/loss'"):
        pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
