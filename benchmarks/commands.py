"""Commands of `workbench`, for benchmarks that run many of them."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import sys
from pathlib import Path


def call(*arguments: str, place: Path | None = None) -> None:
    """Run a `workbench` command in a process that begins with everything imported. Ends the benchmark if it fails.

    Args:
        place: the folder to run it in, where results lie that belong to no run.
    """
    print("$ workbench", shlex.join(arguments), flush=True)
    child = multiprocessing.get_context("fork").Process(target=_command, args=(arguments, place))
    child.start()
    child.join()
    if child.exitcode:
        sys.exit(f"workbench {arguments[0]} ended with exit code {child.exitcode}")


def _command(arguments: tuple[str, ...], place: Path | None) -> None:
    from workbench.cli import app

    if place is not None:
        os.chdir(place)
    sys.argv = ["workbench", *arguments]
    app.main()
