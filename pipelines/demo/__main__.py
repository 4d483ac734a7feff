"""`python -m pipelines.demo files FOLDER`: the raw files of the demo."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.demo.easy_vqa import write_easy_vqa
from pipelines.demo.scene_files import write_scenes
from pipelines.demo.world_files import write_world
from workbench.errors import WorkbenchError

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
    console = Console(stderr=True, emoji=False)
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


if __name__ == "__main__":
    app()
