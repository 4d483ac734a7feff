"""Controls take a model's knowledge, images or pairs away (`Recipe.control`).

A part that heeds controls lists them in `controls`; one that nothing heeds would give a result that is no control.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.recipe.spec import Recipe
from workbench.runs.folder import read_recipe
from workbench.runs.names import RECIPE
from workbench.tasks.root import Root
from workbench.tasks.task import Task


def check_control(control: str | None, parts: Iterable[Any], where: str) -> None:
    """
    Raises:
        WorkbenchError: none of the parts heeds the control.
    """
    heeded = sorted({name for part in parts for name in getattr(part, "controls", ())})
    if control is not None and control not in heeded:
        raise WorkbenchError(
            f"control {control} would change nothing in {where}: its parts heed {', '.join(heeded) or 'none'}"
        )


def check_training(recipe: Recipe, tasks: Iterable[Task], root: Root) -> None:
    """The recipe's control must be heeded, or come with the run that the weights start from.

    Raises:
        WorkbenchError: it is neither.
    """
    if recipe.control in _inherited(recipe):
        return
    embeddings = [part for name in recipe.networks for part in root.network(name).embeddings.values()]
    parts = [part for task in tasks for part in (task.builder, *task.steps)]
    check_control(recipe.control, [*parts, *embeddings], f"the recipe {recipe.name!r}")


def _inherited(recipe: Recipe) -> set[str | None]:
    """The controls of the runs that the networks start from."""
    places = [Path(entry.weights) for spec in recipe.networks.values() for entry in spec.init_from]
    return {read_recipe(place).control for place in places if (place / RECIPE).is_file()}
