"""The command `workbench check`: is this GPU correct, fast and fed?"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import typer

from workbench.core.options.bounds import Name, Seconds
from workbench.core.options.path_options import LocalPath
from workbench.core.terminal import Terminal


def check(
    output: Annotated[
        LocalPath, typer.Option("--output", "-o", help="Folder for the page, the JSON, small corpora and runs.")
    ],
    part: Annotated[list[Name] | None, typer.Option(help="A check to run. Repeatable; default: all.")] = None,
    seconds: Annotated[Seconds, typer.Option(help="Time for all checks; corpora take a minute more.")] = 600.0,
    size: Annotated[Literal["base", "tiny"], typer.Option(help="Size of the models; tiny tries the command.")] = "base",
) -> None:
    """Check one GPU in ten minutes: are its results right, is it fast, does the loader keep up? Nothing is downloaded.

    The page gpu-check.md in the folder opens with the answers; gpu-check.json has the same numbers. The exit code is 1
    if a check failed, and 3 if none failed and some had no time.

    Examples:

      workbench check --output check

      workbench check --output check --part kernels --part recipes --seconds 120
    """
    from pipelines.gpu.check import run

    logging.getLogger().setLevel(logging.INFO)
    page, code = run(output, part or [], seconds, size, f"workbench check --output {output} --size {size}")
    console = Terminal()
    console.print(page.read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{page} and the JSON next to it: attach both to a report", highlight=False, soft_wrap=True)
    raise typer.Exit(code)
