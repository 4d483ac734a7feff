"""Shorter runs, and their losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.recipe.spec import Recipe
from workbench.runs.metrics_file import read_metrics


def losses(run: Path, name: str = "mlm/loss") -> list[float]:
    return [record[name] for record in read_metrics(run) if name in record]


def shorter(recipe: Recipe, **changes: Any) -> Recipe:
    """The recipe with other keys of `train`; the warm-up ends in time."""
    steps = changes.get("max_steps", recipe.train.max_steps)
    schedule = {**recipe.train.lr_schedule, **changes.pop("lr_schedule", {})}
    schedule["warmup_steps"] = min(schedule["warmup_steps"], steps - 1)
    return replace(recipe, train=replace(recipe.train, lr_schedule=schedule, **changes))
