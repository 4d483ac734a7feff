"""The shipped recipes, each read once: tests take their names as parameters, and nobody changes what is read here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.sizes import KEY
from workbench.recipe.spec import Recipe

DIFFERENCES = ("embedding", "layer", "score_bias", "transform", "visibility", "adapter")
IMAGE_BUILDERS = ("image_caption", "caption_pair")


@cache
def recipe(name: str) -> Recipe:
    return load_recipe(name)


@cache
def trees() -> dict[str, dict[str, Any]]:
    """The recipes as they are written: what collecting tests asks of all of them takes a tenth of reading them."""
    return {name: yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for name, path in shipped().items()}


def sizes() -> list[str]:
    """The sizes of all recipes, as they are named on the command line."""
    return [f"{name}-{size}" for name, tree in trees().items() for size in tree.get(KEY, {})]


def reads_images(name: str) -> bool:
    builders = [task["sequence"]["builder"] for task in trees()[name]["tasks"].values()]
    return any(builder in IMAGE_BUILDERS for builder in builders)


@cache
def parts(name: str) -> frozenset[str]:
    """The layers, embeddings, transforms, ... of a recipe's networks and sequences, each with its kind."""
    tree = trees()[name]
    return frozenset(_parts([tree["model"], *(task["sequence"] for task in tree["tasks"].values())]))


def _parts(tree: Any) -> Iterator[str]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree if isinstance(tree, list) else ()):
        if key in DIFFERENCES:
            yield f"{key}: {value}"
        yield from _parts(value)


def kinds(names: Iterable[str]) -> list[str]:
    """The first recipe of each kind of network."""
    first: dict[frozenset[str], str] = {}
    for name in names:
        first.setdefault(parts(name), name)
    return list(first.values())


def of_each_part(names: Iterable[str]) -> list[str]:
    """So few recipes that one of them has each layer, embedding, transform, ... of all."""
    chosen, kinds_of, missing = [], kinds(names), frozenset[str]().union(*map(parts, kinds(names)))
    while missing:
        chosen.append(max(kinds_of, key=lambda name: len(parts(name) & missing)))
        missing -= parts(chosen[-1])
    return chosen


def marked(names: Iterable[str], gate: Iterable[str]) -> list[Any]:
    """The names as parameters; those that the gate leaves out are marked `systems`."""
    return [name if name in {*gate} else pytest.param(name, marks=pytest.mark.systems) for name in names]
