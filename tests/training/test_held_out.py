"""Held-out losses of a run, and the best of its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.training.held_out import HeldOut
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


def test_held_out_scores_that_are_not_finite_have_no_number(
    make_recipe: Any, world_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accuracy of NaNs would be that of the first class. Training continues: a step checks its own losses."""

    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=2, lr_schedule="linear", evaluate_every=1)

    found: list[str] = []
    for broken in (False, True):
        outputs = HeldOut._outputs

        def overflowing(self: HeldOut, *given: Any, outputs: Any = outputs) -> Any:
            return {name: made._replace(loss=made.loss * torch.nan) for name, made in outputs(self, *given).items()}

        if broken:
            monkeypatch.setattr(HeldOut, "_outputs", overflowing)
        run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / f"run-{broken}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found.append(" ".join(sorted({name for line in lines for name in line if name.startswith("held_out/mlm")})))
    assert "held_out/mlm/loss" in found[0]
    assert "held_out/mlm/accuracy" in found[0]
    assert found[1] == ""
