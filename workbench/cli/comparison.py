"""The command `workbench compare`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from annotated_types import Ge, Le, MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Location, Seed, Word
from workbench.core.terminal import Terminal
from workbench.evaluation.analysis.comparison import SAMPLES, compare
from workbench.runs.output_places import OutputFile


def compare_sides(
    sides: Annotated[
        list[Location],
        MinLen(1),
        typer.Argument(
            metavar="FIRST OTHER...",
            help="Runs, results (evaluations/NAME.json), files of --predictions, NAME-seeds.json; seeds with commas.",
        ),
    ],
    samples: Annotated[
        int,
        Ge(100),
        Le(1_000_000),
        typer.Option(help="Bootstrap samples: how often the items are drawn with replacement."),
    ] = SAMPLES,
    seed: Annotated[Seed, typer.Option(help="The seed of these draws.")] = 0,
    task: Annotated[Word | None, typer.Option(help="Only the results of this task, when the sides are runs.")] = None,
    across_variants: Annotated[
        bool, typer.Option("--across-variants", help="Compare also when the variants of the metric differ.")
    ] = False,
    output: Annotated[OutputFile | None, typer.Option("--output", "-o", help="Write the tables as JSON too.")] = None,
) -> None:
    """Test whether runs differ on the items that they were evaluated on: each other run minus the first.

    The test is a paired bootstrap: records are drawn with replacement, both sides get the same draw, and each task's
    metrics are computed on it. The table has the difference, its 95 % interval (percentiles), and p: the share of draws
    that are as far from the difference as the difference is from 0. Several seeds of a side are drawn too, in pairs
    where both sides have as many.

    Examples:

      workbench compare runs/plain-classify runs/ernie-classify

      workbench compare runs/plain-classify-seeds.json runs/ernie-classify-seeds.json --output difference.json
    """
    if len(sides) < 2:
        raise WorkbenchError(f"compare takes two sides or more; found {sides[0]} alone")
    found = compare(sides, samples=samples, seed=seed, task=task, across_variants=across_variants)
    for comparison in found:
        Terminal().print(comparison.table())
    if output is not None:
        write_text(output, json.dumps([each.record() for each in found], indent=1, ensure_ascii=False) + "\n")
