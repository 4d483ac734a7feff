"""The command `workbench sweep`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from annotated_types import Ge, Le, MinLen
from rich.markup import escape
from rich.table import Table

from workbench.api import checked_recipe
from workbench.cli.training import Overrides, RecipeName
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Assignment, Name
from workbench.core.options.command import Trust
from workbench.core.options.path_options import LocalPath
from workbench.core.processes.launch import check_launch
from workbench.core.terminal import Terminal
from workbench.evaluation_api import write_report
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree

if TYPE_CHECKING:
    from workbench.training.sweep import TrialResult

SHOWN = 8
"""Runs in the report: of the best trials, the first seed."""


def sweep(
    recipe: RecipeName,
    over: Annotated[
        list[Assignment],
        MinLen(1),
        typer.Option(
            "--over",
            metavar="KEY=VALUES",
            help="A key and what is tried: LOW..HIGH (from a factor of 10 on a log scale), or [A, B]. Repeatable.",
        ),
    ],
    overrides: Overrides = None,
    trials: Annotated[
        int, Ge(1), Le(10_000), typer.Option(help="Number of trials, those of earlier calls included.")
    ] = 20,
    seeds: Annotated[int, Ge(1), Le(100), typer.Option(help="Runs of a trial, each with a seed of its own.")] = 1,
    jobs: Annotated[int, Ge(1), Le(256), typer.Option(help="Trials at a time, as processes on this machine.")] = 1,
    metric: Annotated[
        Name | None,
        typer.Option(help="Held-out metric to compare; by default train.best, train.stop.metric, or the only loss."),
    ] = None,
    output: Annotated[
        LocalPath | None, typer.Option("--output", "-o", help="The folder of the sweep; default: runs/NAME-sweep.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a recipe with other values of some keys, chosen by optuna from the results so far.

    A trial whose held-out metric is worse than the median of the others is stopped early. The same command resumes a
    sweep that was killed; a larger --trials adds trials. The table is in trials.json, the report in report.html.

    Example:

      workbench sweep bert-tiny --over train.lr=1e-4..1e-2 --over train.global_batch_size=[32,64] --trials 20 --seeds 2
    """
    check_launch(os.environ)
    loaded, place = checked_recipe(recipe, overrides or (), None if output is None else output, trust=trust)
    folder = Path(f"{place}-sweep") if output is None else output
    from workbench.training.sweep import SweepSettings
    from workbench.training.sweep import sweep as swept

    named = metric or _metric(loaded)
    results = swept(SweepSettings(as_tree(loaded), over, named, seeds), folder, trials, jobs)
    Terminal().print(_table(results, named))
    _report(results, named, folder, trust)


def _metric(recipe: Recipe) -> str:
    """The metric that the recipe follows, or its only loss.

    Raises:
        WorkbenchError: it has several losses.
    """
    from workbench.pretraining.task import objective_name

    followed = recipe.train.best or (recipe.train.stop and recipe.train.stop.metric)
    losses = [f"{objective_name(each)}/loss" for task in recipe.tasks.values() for each in task.objectives]
    if not followed and len(losses) > 1:
        raise WorkbenchError(f"the recipe has the losses {', '.join(losses)}; name the one to compare: --metric")
    return followed or losses[0]


def _rows(results: list[TrialResult]) -> list[list[str]]:
    return [
        [
            f"trial {trial.number}",
            "" if trial.mean is None else f"{trial.mean:.5g}",
            trial.state,
            *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in trial.values.values()),
        ]
        for trial in results
    ]


def _table(results: list[TrialResult], metric: str) -> Table:
    table = Table("", escape(metric), "", *map(escape, results[0].values), title=f"{len(results)} trials")
    for row in _rows(results):
        table.add_row(*map(escape, row))
    return table


def _report(results: list[TrialResult], metric: str, folder: Path, trust: bool) -> None:
    """The page about the best trials, with the table of all."""
    head = ["trial", metric, "state", *results[0].values]
    text = ["The value of a trial is the best one over its held-out passes, the mean over its seeds."]
    opening = folder / "opening.json"
    write_text(opening, json.dumps([{"title": "Trials", "text": text, "head": head, "rows": _rows(results)}]))
    runs = [trial.runs[0] for trial in results if trial.runs][:SHOWN]
    path = write_report(runs, folder / "report.html", title=folder.name, opening=opening, trust=trust)
    opening.unlink()
    Terminal(stderr=True).print(f"wrote {escape(str(path))}", highlight=False)
