"""Runs that differ only in their seed: a report shows them as one, with the mean of their numbers and its deviation."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.core.files.yaml_values import read_yaml
from workbench.report.html import fixed
from workbench.report.run import Run
from workbench.runs.names import RECIPE, inside, is_run


def by_seed(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs in groups, in the order of their first; without several seeds each run is a group of its own.

    Runs of a group have one recipe but for `seed`, and so have the runs that they start from (`init_from`).
    """
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(json.dumps(_seedless(run.recipe), sort_keys=True, default=str), []).append(run)
    groups = []
    for group in alike.values():
        apart = len({run.recipe.get("seed") for run in group}) == len(group)
        groups += [group] if apart else [[run] for run in group]
    return groups


def name_of(group: Sequence[Run]) -> str:
    """The name of a group: that of its only run, or of the recipe that its runs share."""
    return group[0].name if len(group) == 1 else str(group[0].recipe.get("name") or group[0].name)


def seed_spread(values: Sequence[Any], decimals: int | None = None) -> str:
    """A number, or the mean of several with their deviation (n - 1) to as many decimals, as HTML.

    Args:
        decimals: decimals of all numbers of the column; None: those that fit this number.
    """
    if len(values) == 1:
        return fixed(values[0], decimals)
    if not all(isinstance(value, int | float) for value in values):
        return ""
    mean = fixed(statistics.fmean(values), decimals)
    decimals = len(mean.partition(".")[2]) if "e" not in mean else 6
    return f'{mean} <span class="spread">± {statistics.stdev(values):.{decimals}f}</span>'


def merged_run(results: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """The numbers that all results have, each with its value from every one."""
    return {name: tuple(numbers[name] for numbers in results) for name in results[0] if all(name in r for r in results)}


def mean_series(group: Sequence[Run], name: str) -> list[tuple[float, float]]:
    """(step, mean over the runs) of a metric, at the steps at which all of them logged it."""
    values: dict[float, list[float]] = {}
    for run in group:
        for step, value in run.series(name):
            values.setdefault(step, []).append(value)
    return [(step, statistics.fmean(found)) for step, found in values.items() if len(found) == len(group)]


def _seedless(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without its seed and the place of its tokenizer; a run that it starts from stands for its recipe."""
    return {name: _started(part) for name, part in recipe.items() if name not in ("seed", "tokenizer")}


def _started(part: Any) -> Any:
    if isinstance(part, list):
        return [_started(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _started(each) for name, each in part.items()}
    start = found.get("weights")
    if isinstance(start, str) and is_run(Path(start)):
        found["weights"] = _seedless(read_yaml(inside(Path(start), Path(start) / RECIPE)))
    return found
