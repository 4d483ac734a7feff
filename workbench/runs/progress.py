"""The progress and the results of a run in words, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import quoted
from workbench.core.files.yaml_values import read_yaml
from workbench.recipe.recipe_listing import stack
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.metrics_file import read_metrics, read_results
from workbench.runs.names import CHECKPOINTS, RECIPE

SHOWN = 6


def progress_of(run: Path) -> Iterator[tuple[str, str]]:
    """The properties of a run, as names and values.

    Raises:
        WorkbenchError: a file of it cannot be read.
    """
    recipe = recipe_from_dict(read_yaml(run / RECIPE))
    yield "run", f"{run}: {recipe.description or recipe.name}"
    yield "stack", stack(recipe)
    corpora = dict.fromkeys(place for task in recipe.tasks.values() for place in task.corpora)
    yield "corpora", ", ".join(corpora)
    if recipe.control:
        yield "control", recipe.control
    names = (path.name.removeprefix("step-") for path in (run / CHECKPOINTS).glob("step-*"))
    steps = sorted(int(name) for name in names if name.isdecimal())
    saved = f"checkpoints at {', '.join(f'{step:,}' for step in steps)}" if steps else "no checkpoint"
    lines = read_metrics(run)
    reached = int(lines[-1]["step"]) if lines else max(steps, default=0)
    yield "steps", f"{reached:,} of {recipe.train.max_steps:,}; {saved}"
    losses = {name: value for line in lines for name, value in line.items() if name.endswith("loss")}
    if losses:
        yield "last", ", ".join(_numbers(losses))
    for result in read_results(run):
        numbers = _numbers(result["numbers"])
        corpus = result.get("inputs", {}).get("corpus")
        place = f" on {corpus['path']}" if isinstance(corpus, dict) and "path" in corpus else ""
        yield "measured", f"{result['task']}{place}: {', '.join(numbers[:SHOWN])}"
    if reached < recipe.train.max_steps:
        yield "to resume", f"workbench pretrain {quoted(run / RECIPE)} --output {quoted(run)}"
    else:
        yield "to measure", f"workbench downstream; workbench evaluate TASK {run} CORPUS; workbench report {run}"


def _numbers(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)]
