"""Tiny sizes as they ship, on small data: their rates learn by heart, and their first steps say nothing of faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.recipes.conftest import World, write_world
from tests.recipes.test_recipes import OF_DATA, SIZES, on_small_data
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain

TINY = [name for name, path in shipped().items() if "tiny" in sizes_of(path)]
QUICK = ("bert", "uniter", "ernie-thu")
ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TINY]


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
    assert [line for line in lines if "no gradient" in line or "WARNING" in line] == []
