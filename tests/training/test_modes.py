"""What is frozen is evaluated while the rest is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from workbench.recipe.reading import load_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.modes import evaluating, set_training
from workbench.training.pretrain import pretrain


def test_modules_without_anything_to_train_are_evaluated() -> None:
    model = nn.ModuleDict(
        {
            "frozen": nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2)).requires_grad_(False),
            "mixed": nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2)),
            "dropout": nn.Dropout(),
        }
    )
    model["mixed"][0].requires_grad_(False)
    set_training(model)
    found = {name: module.training for name, module in model.named_modules() if not module.training}
    assert set(found) == {"frozen", "frozen.0", "frozen.1", "frozen.2", "mixed.0"}
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert {name for name, module in model.named_modules() if not module.training} == set(found)


def test_a_frozen_network_has_no_dropout(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def losses(dropout: float) -> list[float]:
        def change(tree: dict[str, Any]) -> None:
            tree["model"]["streams"]["text"]["dropout"] = dropout
            tree["model"]["layers"][0].update(dropout=dropout, attention_dropout=dropout)
            tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
            tree["train"].update(max_steps=6, evaluate_every=3, evaluate_steps=1, freeze=["networks.main"])

        run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / str(dropout))
        return [record["mlm/loss"] for record in read_metrics(run) if "mlm/loss" in record]

    assert losses(0.5) == pytest.approx(losses(0.0))
