"""`python -m pipelines.demo files FOLDER`: the raw files of the demo."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pipelines.demo.easy_vqa import write_easy_vqa
from pipelines.demo.scene_files import write_scenes
from pipelines.demo.world_files import write_world
from workbench.errors import WorkbenchError
from workbench.terminal import Terminal

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def demo() -> None:
    """The demo: small real inputs from packages on the Python index."""


@app.command()
def files(
    folder: Annotated[Path, typer.Argument(help="where the files go")],
    seed: Annotated[int, typer.Option(help="decides wordings, held-out facts and scenes")] = 0,
) -> None:
    """Write the raw files: a world graph with texts (world/), rendered scenes (scenes/), easy-VQA (easy_vqa/).

    Example: python -m pipelines.demo files data/demo
    """
    console = Terminal(stderr=True)
    parts = {
        "world": lambda place: write_world(place, seed),
        "scenes": lambda place: write_scenes(place, seed),
        "easy_vqa": write_easy_vqa,
    }
    for name, write in parts.items():
        started = time.perf_counter()
        try:
            counts = write(folder / name)
        except WorkbenchError as error:
            console.print(f"[bold red]error:[/] {error}")
            raise typer.Exit(2) from error
        console.print(f"{folder / name}: {counts} ({time.perf_counter() - started:.1f} s)", highlight=False)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="where everything goes")] = Path("runs/demo"),
) -> None:
    """Everything: raw files, corpora, pretraining, evaluation, a report. Run again, it goes on where it stopped.

    Example: python -m pipelines.demo run runs/demo
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded; see `workbench.cli`
    from pipelines.demo.run import run_demo

    console = Terminal()
    try:
        run_demo(folder, console)
    except WorkbenchError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(2) from error
    console.print(f"report: {folder / 'report.html'}   summary: {folder / 'summary.json'}", highlight=False)


if __name__ == "__main__":
    app()
