"""Options that a recipe leaves to its corpora: what made their features is a hash that nobody types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.parts.building import named_by
from workbench.recipe.spec import Recipe, TaskSpec
from workbench.tasks.task import tasks_that_read
from workbench.tasks.words import with_segmenter


def as_corpora_say(recipe: Recipe) -> Recipe:
    """The recipe with what its images leave open (`null`, or not named) filled in from the corpora of their task, and
    with the segmenter that its texts call for (`workbench.tasks.words`).

    A run keeps the recipe that comes out: it refuses features of another backbone as if its name had been written down.

    Raises:
        WorkbenchError: the corpora don't say it, or not the same.
    """
    tasks = {name: _settled(name, task) for name, task in recipe.tasks.items()}
    _check_alike(recipe.tasks, tasks)
    return with_segmenter(replace(recipe, tasks=tasks))


def features_of(recipe: Recipe, network: str) -> frozenset[str]:
    """What made the features that a network learns from, such as `backbone timm:resnet50`; none where it reads none.

    Options that are still left to the corpora are not among them.
    """
    builders = [task.sequence.builder for task in tasks_that_read(recipe, network)]
    images = [value for builder in builders if not isinstance(builder, str) for value in builder.values()]
    return frozenset(
        f"{option} {image[option]}"
        for image in images
        if isinstance(image, Mapping) and isinstance(image.get("image"), str)
        for option in named_by("image", image, "image")[0].of_corpora
        if image.get(option) is not None
    )


def _check_alike(before: Mapping[str, TaskSpec], after: Mapping[str, TaskSpec]) -> None:
    """What several tasks leave open of images of one kind must come out alike: they feed one stream."""
    said: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, task in after.items():
        stated_of, builder = before[name].sequence.builder, task.sequence.builder
        if isinstance(builder, str) or isinstance(stated_of, str):
            continue
        for key, value in builder.items():
            if isinstance(value, Mapping) and isinstance(value.get("image"), str):
                stated = stated_of[key]
                for option in value.keys() - {each for each in stated if stated[each] is not None}:
                    said.setdefault((key, value["image"], option), {})[name] = str(value[option])
    for (key, image, option), by_task in said.items():
        if len({*by_task.values()}) > 1:
            told = "; ".join(f"tasks.{name}: {value}" for name, value in by_task.items())
            raise WorkbenchError(
                f"{option} of {key} {image!r} is left to the corpora, and they don't say the same: {told}. "
                "Take corpora whose features were made alike, or name it in the recipe"
            )


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
