"""Tiny sizes as they ship, on small data: their rates learn by heart, and their first steps say nothing of faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.recipes.conftest import World, write_world
from tests.recipes.shipped_recipes import sizes
from tests.recipes.test_recipes import OF_DATA, SIZES, on_small_data
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of
from workbench.training.pretrain import pretrain

TINY = [name.removesuffix("-tiny") for name in sizes() if name.endswith("-tiny")]
QUICK = ("bert", "uniter", "ernie-thu")
ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TINY]
LAST_LAYER = {
    "minilm": "no gradient reached networks.main.layers.1.attention.attention.output.bias",
    "longformer": "no gradient reached networks.main.layers.1.attention.attention.everywhere.qkv.bias",
}
"""MiniLM compares queries, keys and values of the last layer, and nothing behind them. Longformer's global rows in the
last layer change the first row alone, which is not masked."""
BY_HEART = [
    pytest.param("bert", marks=pytest.mark.long),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("uniter", "ernie-thu", "e-bert", "b2t2", "unicoder-vl")),
]
"""Those of which it is measured that they do."""


@pytest.fixture(scope="module")
def plenty(tmp_path_factory: pytest.TempPathFactory) -> World:
    """32 images with two captions each, 48 texts."""
    torch.manual_seed(0)
    return write_world(tmp_path_factory.mktemp("plenty"), 2)


def tiny(name: str, world: World, **train: Any) -> Recipe:
    """The tiny size on the small data, from fresh weights; no option is changed but what the data decide."""
    plain = on_small_data(load_recipe(f"{name}-tiny"), world, {size: SIZES[size] for size in OF_DATA})
    plain["train"] |= train
    recipe = recipe_from_dict(plain, name)
    for network in recipe.networks.values():
        network.init_from.clear()
    return recipe


@pytest.mark.parametrize("name", ALL)
def test_its_first_steps_warn_of_nothing(name: str, plenty: World, tmp_path: Path) -> None:
    run = pretrain(tiny(name, plenty, max_steps=3, save_every=0), tmp_path / "run")
    lines = (run / "log.txt").read_text().splitlines()
    found = [line for line in lines if "no gradient" in line or "WARNING" in line]
    excused = ("is frozen and has fresh weights", *([LAST_LAYER[name]] if name in LAST_LAYER else []))
    assert [line for line in found if not any(words in line for words in excused)] == []


def losses_by_heart(recipe: Recipe, steps: int, warmup: int, batches: int = 0) -> dict[str, list[float]]:
    """The losses of steps at the recipe's own rate, after a warm-up: of so many micro-batches of each task
    again and again, or of new ones each step."""
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = tasks_of(recipe, tokenizer)
    root, readers = (
        make_model(recipe, tasks, tokenizer),
        {name: reader_of(recipe, task) for name, task in tasks.items()},
    )
    optimizer, seen = make_optimizer(root, recipe.train), dict[str, list[float]]()
    peaks = [group["lr"] for group in optimizer.param_groups]
    for step in range(steps):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * min(1.0, (step + 1) / warmup)
        optimizer.zero_grad()
        for name, task in tasks.items():
            number = step % batches if batches else step
            micro = task.micro_batch(readers[name].micro_batch(number, 0), (0, number, 0))
            found = {o: out.loss / max(micro.counts[o], 1) for o, out in root(micro, list(micro.counts)).items()}
            torch.stack(list(found.values())).sum().backward()
            for objective, loss in found.items():
                seen.setdefault(f"{name}/{objective}", []).append(loss.item())
        torch.nn.utils.clip_grad_norm_(root.parameters(), recipe.train.clip_norm or 1.0)
        optimizer.step()
    return seen


@pytest.mark.parametrize("name", BY_HEART)
def test_its_rate_learns_64_items_by_heart(name: str, plenty: World) -> None:
    """Two micro-batches, again and again: after 100 steps every loss is less than 0.7 of what it was, all together less
    than half."""
    seen = losses_by_heart(tiny(name, plenty), 100, 10, batches=2)
    ends = {label: (sum(losses[:2]) / 2, sum(losses[-4:]) / 4) for label, losses in seen.items()}
    assert {label: pair for label, pair in ends.items() if pair[1] >= 0.7 * abs(pair[0]) + 0.01} == {}
    assert sum(last for _, last in ends.values()) < 0.5 * sum(first for first, _ in ends.values())


@pytest.mark.slow
def test_matching_is_learned_of_pairs_that_are_exchanged_anew_each_step(plenty: World) -> None:
    """At 1e-3 it stays at chance (log 2 = 0.693) for 600 steps and more."""
    recipe = tiny("uniter", plenty)
    matching = recipe.tasks["matching"]
    matching.objectives = [spec for spec in matching.objectives if spec["objective"] == "vision.itm"]
    recipe.tasks = {"matching": matching}
    losses = losses_by_heart(recipe, 600, 30)["matching/itm"]
    assert sum(losses[-50:]) / 50 < 0.5
