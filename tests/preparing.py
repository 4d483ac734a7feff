"""`workbench prepare` as one typer app, all commands imported: for typer's CliRunner."""

from __future__ import annotations

import importlib

import typer

from pipelines.commands.app import app as commands
from pipelines.commands.app import log_output
from workbench.core.options.command import command

app = typer.Typer(name="prepare", no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


app.callback()(log_output)
for name, entry in commands.entries.items():
    module, _, function = entry.path.partition(":")
    app.command(name)(command(getattr(importlib.import_module(module), function)))
