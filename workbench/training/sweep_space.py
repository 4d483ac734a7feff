"""The values that a sweep tries: `KEY=LOW..HIGH` and `KEY=[A, B]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.yaml_values import assignments, parse_value
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import with_overrides

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANGE = re.compile(r"^\s*([^\s\[]+?)\.\.([^\s\]]+)\s*$")
LOG_RATIO = 10
"""From this ratio of its ends on, a range is on a log scale."""


def read_space(over: Sequence[str]) -> dict[str, list[Any] | tuple[float, float]]:
    """The values of each key: a list, or the two ends of a range.

    Raises:
        WorkbenchError: it is neither, or a key comes twice.
    """
    space: dict[str, list[Any] | tuple[float, float]] = {}
    for stated in over:
        key, equals, text = stated.partition("=")
        if not equals or not key or key in space:
            raise WorkbenchError(f"--over {stated}: allowed: KEY=LOW..HIGH or KEY=[A, B, ...], each key once")
        match = RANGE.match(text)
        ends = [parse_value(end) for end in match.groups()] if match else []
        values = ends if match else parse_value(text)
        numbers = [float(end) if isinstance(end, str) and _is_number(end) else end for end in ends]
        if match and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
            low, high = numbers
            if low < high:
                space[key] = (low, high)
                continue
        if match or not isinstance(values, list) or len(values) < 2:
            raise WorkbenchError(
                f"--over {stated}: allowed: KEY=LOW..HIGH with numbers that rise, or KEY=[A, B, ...] with two or more "
                "values"
            )
        space[key] = values
    return space


def _is_number(text: str) -> bool:
    """Whether a text is a number that YAML 1.1 reads as text, such as 1e-4."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_space(recipe: Recipe, space: dict[str, list[Any] | tuple[float, float]]) -> None:
    """Check that the recipe allows each value of a list and both ends of a range.

    Raises:
        WorkbenchError: it does not, or a key is the seed.
    """
    if "seed" in space:
        raise WorkbenchError("--over seed: --seeds N trains each trial with N seeds")
    for key, values in space.items():
        for value in values:
            with_overrides(recipe, assignments({key: value}))


def distributions(space: dict[str, list[Any] | tuple[float, float]]) -> dict[str, BaseDistribution]:
    """The distributions of optuna: whole numbers where both ends are, and a log scale where the ends are a factor of
    `LOG_RATIO` apart. Values of a list are drawn by their positions, as they may be lists and mappings."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for key, values in space.items():
        if isinstance(values, list):
            found[key] = CategoricalDistribution(range(len(values)))
            continue
        low, high = values
        log = low > 0 and high / low >= LOG_RATIO
        if isinstance(low, int) and isinstance(high, int):
            found[key] = IntDistribution(low, high, log=log)
        else:
            found[key] = FloatDistribution(low, high, log=log)
    return found


def overrides(space: dict[str, list[Any] | tuple[float, float]], drawn: dict[str, Any]) -> dict[str, Any]:
    """The values of a trial by key."""
    found = {}
    for key, value in drawn.items():
        listed = space[key]
        found[key] = listed[value] if isinstance(listed, list) else value
    return found
