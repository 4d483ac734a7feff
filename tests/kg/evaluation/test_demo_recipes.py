"""The demo's text recipes: comparable, and trainable as they stand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

NAMES = ["demo-bert", "demo-ernie-thu", "demo-k-bert"]


@pytest.fixture(scope="session")
def data(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny world in the places where the recipes look."""
    folder = tmp_path_factory.mktemp("data")
    for source, target in (("facts", "facts"), ("facts-unseen", "world"), ("graph", "graph")):
        shutil.copytree(world / source, folder / target)
    for name in ("entities.safetensors", "tokenizer.json"):
        shutil.copy(world / name, folder / name)
    return folder


def test_they_differ_in_knowledge_alone() -> None:
    recipes = [load_recipe(name) for name in NAMES]
    first = recipes[0]
    for recipe in recipes[1:]:
        assert recipe.train == first.train
        assert recipe.seed == first.seed
        assert recipe.networks["main"].streams["text"] == first.networks["main"].streams["text"]
        assert list(recipe.tasks) == list(first.tasks)
        for name, task in recipe.tasks.items():
            assert task.corpora == first.tasks[name].corpora
            assert task.sequence.builder == first.tasks[name].sequence.builder
            assert task.objectives[0] == first.tasks[name].objectives[0]
        depth = sum(layer.get("repeat", 1) for layer in recipe.networks["main"].layers)
        assert depth == sum(layer.get("repeat", 1) for layer in first.networks["main"].layers)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("demo-bert", []),
        ("demo-ernie-thu", []),
        ("demo-ernie-thu", ["control=random-entities"]),
        ("demo-k-bert", []),
        ("demo-k-bert", ["control=shuffled-kg"]),
        ("demo-k-bert", ["vars.visible_matrix=false"]),
    ],
)
def test_they_train(name: str, overrides: list[str], data: Path, tmp_path: Path) -> None:
    quick = ["train.max_steps=4", "train.lr_schedule.warmup_steps=1", "train.log_every=1", "train.global_batch_size=6"]
    recipe = load_recipe(name, [f"vars.data={data}", *quick, "train.micro_batch_size=6", *overrides])
    run = pretrain(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["facts.mlm/loss"] for line in lines if "facts.mlm/loss" in line]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    sequences = load(run).tasks["facts"].sequences([{"text": "loville is a town", "spans": [[0, 7, "t0", 1.0]]}])
    text = sequences[0].streams["text"]
    assert ("branch" in text) == (name == "demo-k-bert" and "vars.visible_matrix=false" not in overrides)
    assert (len(text["input_ids"]) > text["position_ids"].max() + 1) == (name == "demo-k-bert")
    assert ("entity" in sequences[0].streams) == (name == "demo-ernie-thu")
