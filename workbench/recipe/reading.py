"""Reading recipes by name or path: YAML, sizes, dotted overrides.

An override of a variable (`vars`) that nothing reads is refused, since it would be an unnoticed mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from workbench.components.kinds import import_paths
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError, nearest, unknown
from workbench.core.files.yaml_values import OverrideError, read_yaml
from workbench.recipe.foreign_names import model_hint
from workbench.recipe.sizes import KEY, resized, sizes_of, splits
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict


@cache
def shipped() -> dict[str, Path]:
    """The files of the recipes that the workbench ships, by name. The folder of a file is its family."""
    folder = Path(str(resources.files("workbench.recipes")))
    return {path.stem: path for path in sorted(folder.glob("*/*.yaml"))}


def recipe_names() -> list[str]:
    """The names of the recipes that the workbench ships, family by family."""
    return list(shipped())


def find_recipe(name: str) -> tuple[Path, str | None]:
    """The file of a shipped recipe or of a path to a YAML file, and the size that the name means.

    `bert-large` is the size `large` of `bert`, and `mine-large.yaml` the size `large` of `mine.yaml`, unless a recipe
    has this very name.
    """
    own = name.endswith((".yaml", ".yml"))
    stem, ending = (name[: name.rindex(".")], name[name.rindex(".") :]) if own else (name, "")
    for recipe, size in splits(stem):
        path = Path(recipe + ending) if own else shipped().get(recipe)
        if path is not None and path.is_file() and (size is None or size in sizes_of(path)):
            return path, size
    if own:
        there = [f"{path} has the sizes {', '.join(sizes_of(path))}" for path in _sized(stem, ending)]
        raise WorkbenchError("; ".join([f"there is no recipe file {name!r} (looked in {Path.cwd()})", *there]))
    meant = {recipe for recipe, _ in splits(stem)} | {
        near for each, _ in splits(stem) for near in nearest(each, shipped())
    }
    known = [f"{recipe}-{size}" for recipe in meant & shipped().keys() for size in sizes_of(shipped()[recipe])]
    hint = model_hint(name, recipe_names())
    if hint:
        raise WorkbenchError(f"there is no recipe, file or folder {name!r}. {hint}")
    listed = "'workbench recipes' lists them; a file of your own ends in .yaml."
    raise unknown("recipe", name, recipe_names(), unlisted=known, advice=listed)


def _sized(stem: str, ending: str) -> list[Path]:
    """The recipe files with sizes that a path may mean."""
    paths = (Path(recipe + ending) for recipe, size in splits(stem) if size)
    return [path for path in paths if path.is_file() and sizes_of(path)]


def load_recipe(name: str, overrides: list[str] | tuple[str, ...] = (), *, trust: bool = False) -> Recipe:
    """Read a recipe, or a size of one, by name or path; apply `key=value` overrides; validate it.

    Args:
        trust: whether code next to the recipe (or in the current folder) may be run for the components that it names.

    Raises:
        WorkbenchError: no such recipe, bad YAML, unknown key, wrong type; the message names the place and the allowed
            values. Or the recipe names components of its own that are not trusted.
    """
    path, size = find_recipe(name)
    recipe = read_recipe(path, overrides, size)
    allow(import_paths(as_tree(recipe)), path.parent, name, trust=trust)
    return recipe


def read_recipe(path: Path, overrides: list[str] | tuple[str, ...] = (), size: str | None = None) -> Recipe:
    """Read a recipe as `load_recipe` does, for its values alone: components of untrusted code cannot be built.

    Raises:
        WorkbenchError: as `load_recipe`.
    """

    def built(plain: Any, size: str | None) -> Recipe:
        if not isinstance(plain, dict):
            raise WorkbenchError(f"a recipe is a mapping with model, tasks and train; found {type(plain).__name__}")
        named = {"name": path.stem, **plain}
        return recipe_from_dict(named if size is None else {**named, "name": f"{named['name']}-{size}"})

    def prepared(tree: Any, size: str | None) -> Any:
        tree = resized(tree, size)
        check_variables(tree, overrides)
        return tree

    def read(size: str | None) -> Recipe:
        return read_yaml(path, overrides, lambda plain: built(plain, size), lambda tree: prepared(tree, size))

    try:
        return read(size)
    except OverrideError:
        raise
    except WorkbenchError as error:
        if size is None or f"{KEY}.{size}" in str(error) or _refuses(read, str(error)):
            raise
        raise WorkbenchError(f"{KEY}.{size}: {error}") from error


def _refuses(read: Callable[[str | None], Recipe], why: str) -> bool:
    """Whether the recipe without a size is refused for the same reason."""
    try:
        read(None)
    except WorkbenchError as error:
        return str(error) == why
    return False


SECTION = "vars"
_READ = re.compile(r"\$\{vars\.([^.}\[]+)")
_SET = re.compile(r"vars\.([^.=\[]+)")


def check_variables(tree: Any, overrides: Iterable[str]) -> None:
    """Refuse an override of a variable that the recipe does not have, and that neither it nor another override reads.

    Args:
        tree: the OmegaConf tree of the recipe before the overrides.

    Raises:
        WorkbenchError: an unknown variable; the message lists the nearest ones.
    """
    overrides = list(overrides)
    named = [match[1] for text in overrides if (match := _SET.match(text))]
    if not named:
        return
    plain = OmegaConf.to_container(tree, resolve=False)
    own = plain.get(SECTION) if isinstance(plain, Mapping) else None
    known = {*map(str, own)} if isinstance(own, Mapping) else set()
    known.update(_READ.findall(repr(plain)), _READ.findall(" ".join(overrides)))
    for name in named:
        if name not in known:
            raise unknown("variable", name, known, SECTION, advice="Nothing in the recipe reads this variable.")
