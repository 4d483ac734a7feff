"""Keys that stand for several values at once: `model.**.dropout`, `model.layers[*].num_heads`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig

from workbench.errors import WorkbenchError

ANY, ANY_DEPTH = "*", "**"
_STEP = re.compile(r"[^.\[\]]+")


def is_pattern(key: str) -> bool:
    """Whether one of the steps of a key is `*` or `**`."""
    return not {ANY, ANY_DEPTH}.isdisjoint(_STEP.findall(key))


def matching(tree: Any, key: str) -> list[str]:
    """The keys of all values in OmegaConf's tree that a pattern stands for, in their order.

    `*` is any one key of a mapping or any element of a list, `**` any number of them, none included. What a pattern
    stands for is there already: it adds nothing.

    Raises:
        WorkbenchError: there is none.
    """
    steps = _STEP.findall(key)
    if steps[-1] in (ANY, ANY_DEPTH):
        raise WorkbenchError(f"{key} names no value; a pattern ends with a name, as in model.{ANY_DEPTH}.dropout")
    found = list(dict.fromkeys(_matching(tree, steps, "")))
    if not found:
        raise WorkbenchError(
            f"{key} stands for no value that is there; {ANY} is any one key or element, {ANY_DEPTH} any number, "
            "and what the file leaves to a default has to be named in full"
        )
    return found


def _matching(tree: Any, steps: list[str], so_far: str) -> Iterator[str]:
    if not steps:
        yield so_far
        return
    step, *others = steps
    if step == ANY_DEPTH:
        yield from _matching(tree, others, so_far)
    for name, inner, place in _inner(tree, so_far):
        if step == ANY_DEPTH:
            yield from _matching(inner, steps, place)
        elif step in (ANY, name):
            yield from _matching(inner, others, place)


def _inner(tree: Any, so_far: str) -> Iterator[tuple[str, Any, str]]:
    """What a mapping or a list holds: its name, itself, and its key."""
    if isinstance(tree, ListConfig):
        for number in range(len(tree)):
            yield str(number), tree._get_node(number), f"{so_far}[{number}]"
    elif isinstance(tree, DictConfig):
        for name in map(str, tree):
            yield name, tree._get_node(name), f"{so_far}.{name}" if so_far else name
