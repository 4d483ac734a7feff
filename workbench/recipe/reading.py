"""Recipes by name or path: YAML plus dotted overrides."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, unknown
from workbench.files.yaml_values import read_yaml
from workbench.parts.trust import allow, import_paths
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict


@cache
def shipped() -> dict[str, Path]:
    """The files of the recipes that the workbench ships, by name; the folder of one is its family."""
    folder = Path(str(resources.files("workbench.recipes")))
    return {path.stem: path for path in sorted(folder.glob("*/*.yaml"))}


def recipe_names() -> list[str]:
    """The recipes that the workbench ships, family by family."""
    return list(shipped())


def find_recipe(name: str) -> Path:
    """The file of a shipped recipe's name, or of a path to a YAML file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise WorkbenchError(f"there is no recipe file {name!r} (looked in {Path.cwd()})")
        return path
    if name not in recipe_names():
        raise unknown("recipe", name, [*recipe_names(), "path/to/recipe.yaml"])
    return shipped()[name]


def load_recipe(name: str, overrides: list[str] | tuple[str, ...] = (), *, trust: bool = False) -> Recipe:
    """Read a recipe by name or path, apply `key=value` overrides, validate.

    Args:
        trust: whether code beside the recipe (or in the current folder) may be run for the parts it names.

    Raises:
        WorkbenchError: no such recipe, bad YAML, unknown key, wrong type; says where and what is allowed. Or parts of
            its own that are not trusted.
    """
    path = find_recipe(name)
    recipe = read_recipe(path, overrides)
    allow(import_paths(as_tree(recipe)), path.parent, name, trust=trust)
    return recipe


def read_recipe(path: Path, overrides: list[str] | tuple[str, ...] = ()) -> Recipe:
    """As `load_recipe`, for its values alone: whatever parts it names, they cannot be built unless they are trusted.

    Raises:
        WorkbenchError: as `load_recipe`.
    """

    def made(plain: Any) -> Recipe:
        if not isinstance(plain, dict):
            raise WorkbenchError(f"a recipe is a mapping with model, tasks and train; found {type(plain).__name__}")
        return recipe_from_dict({"name": path.stem, **plain})

    return read_yaml(path, overrides, made)
