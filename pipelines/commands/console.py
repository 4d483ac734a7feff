"""Running a command as `python -m pipelines.NAME`: errors for people, right exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import click
import typer
from rich.logging import RichHandler

from workbench.cli.app import reported
from workbench.core.options.command import command
from workbench.core.terminal import Terminal


def run(function: Callable[..., Any]) -> None:
    """Parse the command line and run. Exit codes and messages are those of `workbench.cli.app.main`."""
    console = Terminal(stderr=True)
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[RichHandler(console=console, show_path=False)])
    app = typer.Typer(add_completion=False)
    app.command()(command(function))
    try:
        with reported():
            sys.exit(app(standalone_mode=False) or 0)  # typer returns the code of --help and Ctrl-C
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
