"""Options that a recipe leaves to its corpora: what made their features is a hash that nobody types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.parts.building import named_by
from workbench.recipe.spec import Recipe, TaskSpec


def as_corpora_say(recipe: Recipe) -> Recipe:
    """The recipe with what its images leave open (`null`, or not named) filled in from the corpora of their task.

    A run keeps the recipe that comes out: it refuses features of another backbone as if its name had been written down.

    Raises:
        WorkbenchError: the corpora don't say it, or not the same.
    """
    return replace(recipe, tasks={name: _settled(name, task) for name, task in recipe.tasks.items()})


def _settled(name: str, task: TaskSpec) -> TaskSpec:
    builder = task.sequence.builder
    if isinstance(builder, str):
        return task
    filled = {key: _filled(value, f"tasks.{name}.sequence.{key}", task) for key, value in builder.items()}
    return replace(task, sequence=replace(task.sequence, builder=filled))


def _filled(value: Any, where: str, task: TaskSpec) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("image"), str):
        return value
    known = named_by("image", value, where)[0].of_corpora
    found = {key: _said(fact, f"{where}.{key}", task) for key, fact in known.items() if value.get(key) is None}
    return {**value, **found}


def _said(fact: str, where: str, task: TaskSpec) -> str:
    """What all corpora of the task say in `about` of their corpus.json."""
    said = {place: Corpus.open(place).manifest.about.get(fact) for place in task.corpora}
    if len({*said.values()}) == 1 and None not in said.values():
        return str(next(iter(said.values())))
    told = "; ".join(f"{place}: {'nothing' if value is None else value}" for place, value in said.items())
    raise WorkbenchError(
        f"{where} is left to the corpora, which must say the same of their {fact!r}. They say {told}. Name it in the "
        "recipe, or take corpora whose features were made alike"
    )
