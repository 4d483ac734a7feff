"""Sizes of a recipe: the same system larger or smaller. A size lists the values in which it differs.

    sizes:
      large: {model.streams.text.hidden_size: 1024, "model.layers[0].repeat": 24}

Sizes belong to the file: a recipe that was read is one of its sizes, and has no sizes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from workbench.core.errors import WorkbenchError
from workbench.core.files.yaml_values import read_yaml, set_value

KEY = "sizes"


def splits(name: str) -> Iterator[tuple[str, str | None]]:
    """The readings of a name: a recipe, then a recipe and a size split at each hyphen, the last hyphen first."""
    yield name, None
    recipe, hyphen, size = name.rpartition("-")
    while hyphen:
        yield recipe, size
        recipe, hyphen, more = recipe.rpartition("-")
        size = f"{more}-{size}"


def sizes_of(path: Path) -> list[str]:
    """The names of the sizes in a recipe's file, in its order.

    Raises:
        WorkbenchError: `sizes` is not a mapping of names to values by dotted key.
    """
    return read_yaml(path, make=lambda tree: list(_sizes(tree)))


def resized(tree: Any, size: str | None) -> Any:
    """The OmegaConf tree of one size of a recipe's file, or of the file itself.

    Raises:
        WorkbenchError: as `sizes_of`; or a key of the size leads nowhere.
    """
    chosen = _sizes(tree)[size] if size is not None else {}
    # `${key}` stays unresolved: it refers to the value after the overrides
    values = chosen.items_ex(resolve=False) if isinstance(chosen, DictConfig) else chosen.items()
    listed = list(values)
    if KEY in tree:
        del tree[KEY]
    for key, value in listed:
        try:
            set_value(tree, key, value)
        except WorkbenchError as error:
            raise WorkbenchError(f"{KEY}.{size}: {error}") from error
    return tree


def _sizes(tree: Any) -> dict[str, dict[str, Any]]:
    sizes = tree.get(KEY, {}) if isinstance(tree, Mapping) else {}
    if not isinstance(sizes, Mapping):
        raise _refusal(KEY, sizes)
    for name, values in sizes.items():
        if not (isinstance(name, str) and name):
            raise _refusal(f"{KEY}: the name", name)
        if not (isinstance(values, Mapping) and all(isinstance(key, str) for key in values)):
            raise _refusal(f"{KEY}.{name}", values)
    return dict(sizes)


def _refusal(where: str, found: Any) -> WorkbenchError:
    return WorkbenchError(
        f"{where} = {found!r}; allowed: a mapping of size names to values by dotted key "
        "(large: {model.streams.text.hidden_size: 1024})"
    )
