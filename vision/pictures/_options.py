"""Options that pictures of runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.options.bounds import CountOrZero, Location, Name, Title
from workbench.runs.outputs import OutputFile

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run that reads images.")]
Records = Annotated[Location, typer.Argument(metavar="CORPUS", help="Images, with their texts.")]
Record = Annotated[CountOrZero, typer.Option(help="Which record of CORPUS, counted from 0.")]
TaskName = Annotated[Name | None, typer.Option("--task", help="Of several tasks of the run, this one.")]
ObjectiveName = Annotated[Name | None, typer.Option("--objective", help="Of several objectives that fit, this one.")]
Said = Annotated[Title | None, typer.Option(help="This text instead of the record's first caption or question.")]
Output = Annotated[
    OutputFile | None,
    typer.Option("--output", "-o", help="A .png, .svg or .pdf file; default: into the run's pictures, for its report."),
]
