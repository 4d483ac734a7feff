"""`python -m pipelines.demo`: the demo's raw files, the demo as a whole, and the small files of the documentation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    Example: python -m pipelines.demo small-files first-try
    """
    from pipelines.demo.small_files import write_small_files

    write_small_files(folder)
    Terminal(stderr=True).print(f"texts, a graph and images in {folder.resolve()}", highlight=False)


@app.command()
def checkpoints(
    folder: Annotated[Path, typer.Argument(help="folder for all files")] = Path("runs/demo"),
) -> None:
    """Train the small checkpoints to try, and put them into the cache: `workbench serve workbench:k-bert-world`.

    What a demo in this folder has trained already is not trained again.

    Example: python -m pipelines.demo checkpoints runs/demo
    """
    _single_threads()
    from pipelines.demo.checkpoints import NAMED, jobs, publish
    from pipelines.demo.run import run_jobs

    with _ending() as console:
        run_jobs(folder, jobs(), console)
        for place in publish(folder):
            console.print(f"{NAMED}{place.name}", highlight=False)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="folder for all files")] = Path("runs/demo"),
) -> None:
    """Run the whole demo: raw files, corpora, pretraining, evaluation, a report. An interrupted demo resumes.

    Example: python -m pipelines.demo run runs/demo
    """
    _single_threads()
    from pipelines.demo.run import run_demo

    with _ending() as console:
        run_demo(folder, console)
        console.print(f"\nreport: {folder / 'report.html'}   summary: {folder / 'summary.json'}", highlight=False)


def _single_threads() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # for the parallel jobs; read when torch is loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see `workbench.cli.app`


@contextmanager
def _ending() -> Iterator[Terminal]:
    """A block of jobs, whose error or interruption is one message."""
    from pipelines.demo.together import DemoInterrupted

    console = Terminal()
    try:
        yield console
    except WorkbenchError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(error.exit_code) from error
    except DemoInterrupted:
        console.print("stopped. Run the same command again to resume")
        raise


if __name__ == "__main__":
    app()
