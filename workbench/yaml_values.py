"""YAML of other people, as plain values.

A recipe is OmegaConf's YAML without what reaches outside of it: `${key}` stands for another value of the same recipe;
OmegaConf's resolvers (`${oc.env:TOKEN}` is the environment's) would put secrets into every copy of the recipe and into
reports, and are refused. No tag makes an object: OmegaConf's loader is YAML's safe one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from workbench.errors import WorkbenchError

_KEY = re.compile(r"\$\{[\w.\-\[\]]+\}")
_DEEP = "values are nested too deeply"


def read_yaml(path: Path, overrides: Iterable[str] = ()) -> Any:
    """The plain values of a recipe's file, with `key=value` overrides applied and every `${key}` replaced.

    Raises:
        WorkbenchError: no YAML in UTF-8, an override that is none, or something else than a key in `${...}`.
    """
    return _plain(lambda: OmegaConf.load(path), overrides, str(path))


def changed(tree: Any, overrides: Iterable[str], where: str) -> Any:
    """Plain values with `key=value` overrides applied.

    Raises:
        WorkbenchError: as `read_yaml`.
    """
    return _plain(lambda: OmegaConf.create(tree), overrides, where)


def _plain(load: Any, overrides: Iterable[str], where: str) -> Any:
    try:
        tree = load()
        for key, value in map(_override, overrides):
            OmegaConf.update(tree, key, value, merge=False)
        for text in _texts(OmegaConf.to_container(tree, resolve=False)):
            if "${" in _KEY.sub("", text):
                raise WorkbenchError(
                    f"{where}: {text!r}: only keys of the recipe itself may stand in ${{...}}, as in ${{vars.data}}; "
                    "nothing is read from the environment. Give such a value as an override, key=value"
                )
        return OmegaConf.to_container(tree, resolve=True)
    except (OmegaConfBaseException, YAMLError, TypeError, ValueError) as error:
        raise WorkbenchError(f"{where}: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise WorkbenchError(f"{where}: {_DEEP}") from error


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise WorkbenchError(f"override {text!r} is not of the form key=value (for example train.lr=1e-4)")
    try:
        return key, OmegaConf.to_container(OmegaConf.create(f"value: {value}"), resolve=False)["value"]  # type: ignore
    except (OmegaConfBaseException, YAMLError) as error:
        raise WorkbenchError(f"override {text!r}: the value is no YAML ({' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise WorkbenchError(f"override {text[:60]!r}...: {_DEEP}") from error


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        tree = [*tree.keys(), *tree.values()]
    if isinstance(tree, list):
        for inner in tree:
            yield from _texts(inner)
    elif isinstance(tree, str):
        yield tree
