"""Commands of `workbench`, for benchmarks that run many of them."""

from __future__ import annotations

import shlex
from pathlib import Path

from pipelines.gpu.commands import run_command


def call(*arguments: str, place: Path | None = None) -> None:
    """Run a `workbench` command in a process that begins with everything imported. Ends the benchmark if it fails.

    Args:
        place: the folder to run it in, where results lie that belong to no run.
    """
    print("$ workbench", shlex.join(arguments), flush=True)
    run_command(*arguments, place=place)
