"""Running a command as `python -m pipelines.NAME`: errors for people, right exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import click
import typer
from rich.logging import RichHandler
from rich.markup import escape

from workbench.errors import WorkbenchError
from workbench.options import command
from workbench.stopping import ending
from workbench.terminal import Terminal


def run(function: Callable[..., Any]) -> None:
    """Parse the command line and run. Exit code 2 for a wrong input, 128 + n where signal n ended it (130: Ctrl-C)."""
    console = Terminal(stderr=True)
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[RichHandler(console=console, show_path=False)])
    app = typer.Typer(add_completion=False)
    app.command()(command(function))
    try:
        with ending():
            sys.exit(app(standalone_mode=False) or 0)  # typer returns the code of --help and Ctrl-C
    except WorkbenchError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
