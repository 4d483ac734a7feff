"""Commands of `workbench` in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path


def run_command(*arguments: str, place: Path | None = None) -> None:
    """Run a `workbench` command in a process that begins with everything imported.

    Args:
        place: the folder to run it in, where results lie that belong to no run.

    Raises:
        SystemExit: it ended with another exit code than 0.
    """
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
