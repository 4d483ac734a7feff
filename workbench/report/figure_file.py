"""The file of a figure that a command draws: one that its option names, or else one of the run's own figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.report.run import save_figure
from workbench.runs.output_places import OutputFile

FigureFile = Annotated[
    OutputFile | None,
    typer.Option("--output", "-o", help="A .png, .svg or .pdf file; default: in the run's figures, for its report."),
]


def keep_figure(figure: Any, run: Path, name: str, title: str, caption: str, output: Path | None) -> Path:
    """Write a figure to a file (PNG, SVG or PDF by its suffix), or else to the run's figures, for its report."""
    if output is None:
        return save_figure(figure, run, name, title, caption)
    kind = output.suffix.lower().lstrip(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise WorkbenchError(f"--output {output}: a figure is a .png, .svg or .pdf file; choose one of these suffixes")
    with atomic(output) as file:
        figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", facecolor="white")
    return output
