"""What the tests of whole systems share: a recipe trained for one step in its small size, and commands on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.shipped_recipes import recipe
from tests.recipes.test_recipes import small_recipe
from workbench.cli.app import app
from workbench.components.building import find
from workbench.core.errors import WorkbenchError
from workbench.training.pretrain import pretrain

ONE = ("train.max_steps=1", "train.lr_schedule={lr_schedule: constant}")
ONE_STEP = {"max_steps": 1, "lr_schedule": {"lr_schedule": "constant"}, "save_every": 0}
ALL_ALIKE: dict[str, Any] = {"groups": [], "train_only": [], "freeze": []}
"""Groups of parameters, and frozen ones, are named by the numbers of layers, of which the small size has fewer."""


def one_step(name: str, world: Any, folder: Path, depth: int = 1) -> Path:
    """A run of the recipe in its small size, from fresh weights, with so many layers where it has many alike."""
    small = small_recipe(name, world)
    for network in small.networks.values():
        network.init_from.clear()
        for layer in network.layers:
            layer |= {"repeat": depth} if "repeat" in layer else {}
    small = dataclasses.replace(small, train=dataclasses.replace(small.train, **ONE_STEP, **ALL_ALIKE))
    return pretrain(small, folder / name)


def refusal(*arguments: object) -> str | None:
    """What a command says is wrong, by a `WorkbenchError`; None where it has done what it is for."""
    try:
        with pytest.raises(SystemExit) as ended:
            app.run([str(argument) for argument in arguments], "workbench")
    except WorkbenchError as error:
        return str(error)
    assert not ended.value.code, f"{arguments}: it ended with {ended.value.code}"
    return None


def objectives(name: str) -> Iterator[type]:
    """The classes of a recipe's objectives."""
    for task in recipe(name).tasks.values():
        yield from (find("objective", spec["objective"]) for spec in task.objectives)
