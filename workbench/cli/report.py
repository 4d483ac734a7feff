"""The command `workbench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.core.options.bounds import Title
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.evaluation_api import write_report
from workbench.runs.names import SEEDS
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder


def report(
    runs: Annotated[
        list[StoredFolder],
        typer.Argument(
            help="Run folders or URLs, or evaluations/NAME of vectors, linkers and checkpoints, to show side by side."
        ),
    ],
    output: Annotated[
        OutputFile | None,
        typer.Option("--output", "-o", help="The HTML file to write; default: report.html in the first run."),
    ] = None,
    title: Annotated[Title, typer.Option(help="Title of the page; default: the names of the runs.")] = "",
    opening: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with chapters before the results. Each has title, text, head, rows and figure (SVG)."
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write one self-contained HTML page about runs: curves, results next to baselines and controls, figures.

    The results of vectors, a linker or a checkpoint are in evaluations/NAME.

    Examples:

      workbench report runs/bert runs/k-bert --output demo.html

      workbench report runs/kg-bert evaluations/transe.safetensors --output links.html
    """
    # NAME-* also matches the table next to the runs of several seeds; the page computes this table from the runs
    folders = [folder for folder in runs if not (folder.name.endswith(SEEDS) and folder.is_file())] or runs
    path = write_report(folders, output, title=title, opening=opening, trust=trust)
    Terminal(stderr=True).print(f"wrote {escape(str(path))}", highlight=False)
