"""Recipes as plain values, in the form in which recipes are written, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from workbench.core.files.yaml_values import changed
from workbench.core.local_copies import with_urls
from workbench.core.options.values import check
from workbench.recipe.spec import Recipe, Spec


def recipe_from_dict(tree: Mapping[str, Any], where: str = "") -> Recipe:
    """A recipe from plain values (as `dataclasses.asdict` returns them)."""
    return check(Recipe, dict(tree), where)


def as_tree(recipe: Recipe) -> Spec:
    """The recipe as plain values, in the form in which recipes are written."""
    tree = dataclasses.asdict(recipe)
    for task in tree["tasks"].values():
        builder = task["sequence"].pop("builder")
        options = {"builder": builder} if isinstance(builder, str) else builder
        task["sequence"] = {**options, **task["sequence"]}
    return tree


def with_overrides(recipe: Recipe, overrides: list[str] | tuple[str, ...]) -> Recipe:
    """A recipe with `key=value` overrides applied."""
    return changed(as_tree(recipe), overrides, recipe.name, recipe_from_dict)


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML, without the secrets of URLs."""
    return OmegaConf.to_yaml(OmegaConf.create(with_urls(as_tree(recipe))))
