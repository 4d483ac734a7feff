"""Descriptions of the shipped downstream tasks: for `workbench downstream` and docs/downstream/."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

from workbench.core.errors import unknown
from workbench.core.options.command import spelling, typer_info
from workbench.core.options.values import described, without_null
from workbench.evaluation.options import Predicting, Scoring, Tuning
from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_modules import line_of, task_modules

FAMILIES = {"workbench": "text", "kg": "knowledge", "vision": "vision_language"}
"""The family of a package's tasks."""


class CommandOption(NamedTuple):
    """An option of a command as it is typed, what it may be, its default ("" where it must be given), and its help."""

    name: str
    allowed: str
    default: str
    help: str


class TaskCommand(NamedTuple):
    """`finetune`, `evaluate` or `predict` of a task: its help, and the options that not every task has."""

    verb: str
    text: str
    options: list[CommandOption]


@dataclass(frozen=True)
class TaskEntry:
    """A task: its name, its family (text, knowledge, vision_language), the line of its folder, its commands."""

    name: str
    family: str
    line: str
    commands: list[TaskCommand]


def tasks(names: Iterable[str] | None = None) -> list[TaskEntry]:
    """The tasks that come with the workbench, or those of these names.

    Raises:
        WorkbenchError: there is no such task.
    """
    folders = task_modules()
    for name in names or ():
        if name not in folders:
            raise unknown("task", name, folders)
    return [_task_entry(name, folders[name]) for name in names or folders]


def _task_entry(name: str, folder: str) -> TaskEntry:
    task = find_task(name)
    kinds = (
        ("finetune", task.tuning, Tuning),
        ("evaluate", task.scoring, Scoring),
        ("predict", task.predicting, Predicting),
    )
    commands = [
        TaskCommand(verb, inspect.getdoc(options) or "", list(options_of_command(options, base)))
        for verb, options, base in kinds
        if options
    ]
    family = FAMILIES[folder.partition(".")[0]]
    return TaskEntry(name, family, line_of(folder), commands)


def options_of_command(kind: Any, base: Any = None) -> Iterator[CommandOption]:
    """The options of a command, those that differ from the base's alone."""
    same = set(options_of_command(base)) if base else set()
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        default = "" if field.default is MISSING or field.default is None else str(field.default)
        allowed = described(without_null(hint))  # null stands for an option that is not given
        info = typer_info(hint)
        option = CommandOption(spelling(field.name, hint), allowed, default, str(info.help) if info else "")
        if option not in same:
            yield option
