"""The tasks of a recipe: their half in the loader, and the root module on the device."""

from __future__ import annotations

from typing import Any

import torch

from workbench.errors import WorkbenchError
from workbench.keyed import digest
from workbench.recipe.spec import Recipe
from workbench.tasks.fitting import check_fit
from workbench.tasks.objective import Objective
from workbench.tasks.root import Place, Root, build_root
from workbench.tasks.task import Task, build_tasks
from workbench.text.tokenizer import Tokenizer


def tasks_of(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Task]:
    """The tasks by name, without their heads."""
    return build_tasks(recipe.tasks, seed=recipe.seed, resources=_resources(recipe, tokenizer))


def make_root(recipe: Recipe, tasks: dict[str, Task], tokenizer: Tokenizer | None) -> Root:
    """Networks and heads with fresh weights that depend on the recipe's seed alone.

    Objectives of one name in several tasks share a head.

    Raises:
        WorkbenchError: such objectives differ in class, network or view, or sequences do not fit the networks.
    """
    objectives: dict[str, Objective] = {}
    places: dict[str, Place] = {}
    for task in tasks.values():
        for placed in task.objectives:
            place, known = Place(placed.network, placed.view), objectives.get(placed.name)
            if known is not None and (type(known) is not type(placed.objective) or places[placed.name] != place):
                raise WorkbenchError(
                    f"tasks.{task.name}: another task has an objective {placed.name!r} of another class, network or "
                    "view, and objectives of one name share a head; give one of them another `name`"
                )
            objectives.setdefault(placed.name, placed.objective)
            places[placed.name] = place
    torch.manual_seed(digest(recipe.seed, "weights") % 2**63)
    root = build_root(recipe, objectives, places, **_resources(recipe, tokenizer))
    check_fit(tasks.values(), root)
    return root


def _resources(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What parts may ask for by the names of their arguments."""
    resources: dict[str, Any] = {"seed": recipe.seed, "control": recipe.control}
    if tokenizer is not None:
        resources |= {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size}
    return resources
