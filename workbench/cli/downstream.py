"""The command `workbench downstream`: the tasks of `finetune` and `evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from workbench.core.errors import unknown
from workbench.core.options.bounds import Word
from workbench.core.terminal import Terminal
from workbench.evaluation.task_modules import line_of, task_modules, verbs_of


def list_tasks(
    task: Annotated[Word | None, typer.Argument(help="Only this task, with its options.")] = None,
) -> None:
    """List the downstream tasks, one line each; with TASK also its options.

    Examples:

      workbench downstream

      workbench downstream classify
    """
    console, table, modules = Terminal(), Table(box=None, pad_edge=False, show_header=False), task_modules()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    if task is None:
        for name, place in modules.items():
            table.add_row(name, " ".join(verbs_of(place)), escape(line_of(place)))
        console.print(table)
        return
    if task not in modules:
        raise unknown("task", task, modules)
    from workbench.evaluation.task_listing import tasks  # torch takes seconds

    [shown] = tasks([task])
    table.add_row(escape(shown.name), " ".join(c.verb for c in shown.commands), escape(shown.line))
    for command in shown.commands:
        for option in command.options:
            default = f" [{option.default}]" if option.default else ""
            table.add_row("", f"{command.verb} {escape(option.name)}", escape(f"{option.help}{default}"))
    console.print(table)
