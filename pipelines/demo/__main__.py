"""`python -m pipelines.demo`: the demo's raw files, the demo as a whole, and the small files of the documentation."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.terminal import Terminal

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def demo() -> None:
    """The demo: small real inputs from packages on the Python index."""


@app.command()
def files(
    folder: Annotated[Path, typer.Argument(help="folder for the files")],
    seed: Annotated[int, typer.Option(help="seed of wordings, held-out facts and scenes")] = 0,
) -> None:
    """Write the raw files: a world graph with texts (world/), rendered scenes (scenes/), easy-VQA (easy_vqa/).

    Example: python -m pipelines.demo files data/demo
    """
    from pipelines.demo.raw import RAW_SPLITS, write_raw_split

    console = Terminal(stderr=True)
    for name in RAW_SPLITS:
        started = time.perf_counter()
        try:
            write_raw_split(name, folder, seed)
        except WorkbenchError as error:
            console.print(f"[bold red]error:[/] {error}")
            raise typer.Exit(error.exit_code) from error
        console.print(f"{folder / name} ({time.perf_counter() - started:.1f} s)", highlight=False)


@app.command()
def small_files(
    folder: Annotated[Path, typer.Argument(help="folder for the files")] = Path(),
) -> None:
    """Write the small files that the documentation pages use: texts, a graph, images.

    Example: python -m pipelines.demo small-files
    """
    from pipelines.demo.small_files import write_small_files

    write_small_files(folder)
    Terminal(stderr=True).print(f"texts, a graph and images in {folder.resolve()}", highlight=False)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="folder for all files")] = Path("runs/demo"),
) -> None:
    """Run the whole demo: raw files, corpora, pretraining, evaluation, a report. An interrupted demo resumes.

    Example: python -m pipelines.demo run runs/demo
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # for the parallel jobs; read when torch is loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see `workbench.cli.app`
    from pipelines.demo.run import run_demo
    from pipelines.demo.together import DemoInterrupted

    console = Terminal()
    try:
        run_demo(folder, console)
    except WorkbenchError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(error.exit_code) from error
    except DemoInterrupted:
        console.print("stopped. Run the same command again to resume")
        raise
    console.print(f"\nreport: {folder / 'report.html'}   summary: {folder / 'summary.json'}", highlight=False)


if __name__ == "__main__":
    app()
