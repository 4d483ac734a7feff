"""Whether a recipe's control is one, with all the parts that the run has (`workbench.parts.controls`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.parts.build_context import parts_within
from workbench.parts.controls import check_control
from workbench.recipe.spec import Recipe
from workbench.runs.folder import read_recipe
from workbench.runs.names import RECIPE
from workbench.tasks.root import Root
from workbench.tasks.task import Task


def check_training(recipe: Recipe, tasks: Iterable[Task], root: Root) -> None:
    """The recipe's control must be heeded by all parts that it concerns; where none does, it must come with the run
    that the weights start from.

    Raises:
        WorkbenchError: it is not so.
    """
    of_tasks = [part for task in tasks for part in task.parts]
    inherited = recipe.control in _inherited(recipe)
    check_control(recipe.control, [*of_tasks, *parts_within(root)], f"the recipe {recipe.name!r}", inherited=inherited)


def _inherited(recipe: Recipe) -> set[str | None]:
    """The controls of the runs that the networks start from."""
    places = [Path(entry.weights) for spec in recipe.networks.values() for entry in spec.init_from]
    return {read_recipe(place).control for place in places if (place / RECIPE).is_file()}
