"""The command `workbench downstream`: the tasks of `finetune` and `evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from workbench.core.errors import unknown
from workbench.core.options.bounds import Word
from workbench.core.terminal import Terminal
from workbench.evaluation.task_modules import task_modules


def list_tasks(
    task: Annotated[Word | None, typer.Argument(help="Only this task, with its options.")] = None,
) -> None:
    """List the downstream tasks, one line each; with TASK also its options.

    Examples:

      workbench downstream

      workbench downstream classify
    """
    if task is not None and task not in task_modules():
        raise unknown("task", task, task_modules())
    from workbench.evaluation.task_listing import tasks  # torch takes seconds

    console, table = Terminal(), Table(box=None, pad_edge=False, show_header=False)
    for shown in tasks([task] if task else None):
        table.add_row(f"[bold]{escape(shown.name)}[/]", " ".join(c.verb for c in shown.commands), escape(shown.line))
        for command in shown.commands if task else ():
            for option in command.options:
                default = f" [{option.default}]" if option.default else ""
                table.add_row("", f"{command.verb} {escape(option.name)}", escape(f"{option.help}{default}"))
    console.print(table)
