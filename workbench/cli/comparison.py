"""The command `workbench compare`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Place, Seed, Word
from workbench.core.terminal import Terminal
from workbench.evaluation.analysis.comparison import SAMPLES, Samples, compare, local_side
from workbench.runs.output_places import OutputFile


def compare_sides(
    sides: Annotated[
        list[Place],
        MinLen(1),
        typer.Argument(
            metavar="FIRST OTHER...",
            help="Runs, results (evaluations/NAME.json), files of --predictions, or NAME-seeds.json; also URLs. "
            "Commas join the seeds of a side.",
        ),
    ],
    samples: Annotated[
        Samples,
        typer.Option(help="Number of bootstrap samples: draws of the items with replacement."),
    ] = SAMPLES,
    seed: Annotated[Seed, typer.Option(help="Seed of the bootstrap samples.")] = 0,
    task: Annotated[
        Word | None, typer.Option(help="Compare only the results of this task, if the sides are runs.")
    ] = None,
    across_variants: Annotated[
        bool, typer.Option("--across-variants", help="Allow results with different variants of a metric.")
    ] = False,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="Write the tables to this file as JSON.")
    ] = None,
) -> None:
    """Test whether runs differ from the first run on the items that both were evaluated on.

    The table has each number of both runs in the order given, and the difference: the other run minus the first. The
    95 % interval and p of a difference are those of t. Its variance comes from the items, which are drawn with
    replacement for both sides alike, and from the seeds, if a side has several. If both sides have the same number of
    seeds, these are paired in their order. A run that predicts one label for all items, or equals a baseline, is named,
    and gets no p.

    Examples:

      workbench compare runs/plain-classify runs/ernie-classify

      workbench compare runs/plain-classify-seeds.json runs/ernie-classify-seeds.json --output difference.json
    """
    if len(sides) < 2:
        raise WorkbenchError(f"compare takes two sides or more; found {sides[0]} alone")
    found = compare(
        [",".join(map(local_side, side.split(","))) for side in sides],
        samples=samples,
        seed=seed,
        task=task,
        across_variants=across_variants,
    )
    for comparison in found:
        Terminal().print(comparison.table())
    if output is not None:
        write_text(output, json.dumps([each.record() for each in found], indent=1, ensure_ascii=False) + "\n")
