"""The command `workbench cost`. Its inputs are checked before torch is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from annotated_types import MinLen
from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Count, Place
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.interop.checkpoint_files import check_place
from workbench.recipe.train_spec import Precision
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import fetched_run


def cost(
    runs: Annotated[
        list[Place],
        MinLen(1),
        typer.Argument(metavar="RUN...", help="Runs, or checkpoints: folders, URLs or package:NAME."),
    ],
    corpus: Annotated[
        Place | None, typer.Option(help="Records to measure on, as each run reads them; default: texts of words.")
    ] = None,
    length: Annotated[
        list[Count] | None, typer.Option(help="Tokens of a text. Repeatable; default: 32 and 128.")
    ] = None,
    batch: Annotated[list[Count] | None, typer.Option(help="Sequences at once. Repeatable; default: 1 and 32.")] = None,
    rounds: Annotated[Count, typer.Option(help="Passes of each batch; the runs take turns.")] = 10,
    network: WhichNetwork = None,
    precision: Annotated[Precision, typer.Option(help="Precision of the networks.")] = "float32",
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="Write the costs to this file as JSON.")
    ] = None,
    figure: Annotated[
        OutputFile | None, typer.Option(help="Draw the first result over the latency of the first batch: an .svg file.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Measure what networks cost: parameters, bytes, operations, latency and throughput, next to their results.

    A network is measured without its heads. An exported folder with model.onnx has a second row, run by onnxruntime.
    One with int8 weights is run by torchao. Both run their heads too. The latency of a batch is the median of its
    passes. It depends on the machine and its load, so compare runs in one command.

    Examples:

      workbench cost runs/bert runs/student

      workbench cost runs/bert exported/bert exported/bert-int8 --figure cost.svg

      workbench cost runs/uniter --corpus corpora/pairs --batch 1 --batch 8 --output cost.json
    """
    places = [Path(fetched_run(run)) for run in runs]
    for place in places:
        check_place(place)
    if figure is not None and figure.suffix != ".svg":
        raise WorkbenchError(f"--figure {figure}: allowed: a file that ends in .svg")
    records = None if corpus is None else Corpus.open(corpus)
    from workbench.evaluation.analysis.cost import costs, tables, written

    found = costs(
        places,
        corpus=records,
        lengths=length or (32, 128),
        batches=batch or (1, 32),
        rounds=rounds,
        network=network,
        precision=precision,
        trust=trust,
    )
    for table in tables(found):
        Terminal().print(table)
    if output is not None:
        write_text(output, written(found))
    if figure is not None:
        from workbench.evaluation.analysis.cost_figure import draw_costs

        name = draw_costs(found, figure)
        Terminal().print(f"{escape(str(figure))}: {escape(name)} over latency", highlight=False)
