"""Running a command as `python -m pipelines.NAME`: errors for people, right exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from rich.logging import RichHandler

from workbench.errors import WorkbenchError


def run(command: Callable[..., Any]) -> None:
    """Parse the command line and run. Exit code 2 for a wrong input, 130 for Ctrl-C."""
    console = Console(stderr=True)
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[RichHandler(console=console, show_path=False)])
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except WorkbenchError as error:
        console.print(f"[bold red]error:[/] {_escaped(error)}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        console.print("stopped; finished shards are kept: run the same command again to go on")
        sys.exit(130)


def _escaped(error: WorkbenchError) -> str:
    return str(error).replace("[", "\\[")
