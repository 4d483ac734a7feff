"""Every system of the comparison builds: its recipe with the comparison's changes, before hours are spent on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.vision_systems import SYSTEMS, common
from workbench.pretraining.assembly import make_model
from workbench.pretraining.task import build_tasks
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer, train_tokenizer


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_tasks_and_the_network_of_a_system_are_built(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer(train_tokenizer(["a dog in the snow"] * 3, "wordpiece", 60))
    (tmp_path / "answers.json").write_text(json.dumps(["yes", "no"]))
    recipe = load_recipe(SYSTEMS[name].recipe, [*SYSTEMS[name].overrides, *common(name, 0, 2, tmp_path, "made-up")])
    resources = {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size, "seed": 0, "control": None}
    tasks = build_tasks(recipe.tasks, seed=0, resources=resources)
    root = make_model(recipe, tasks, tokenizer)
    assert sum(weight.numel() for weight in root.parameters()) > 0
    assert all(task.objectives for task in tasks.values())
