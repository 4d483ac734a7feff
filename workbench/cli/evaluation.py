"""`workbench finetune TASK` and `workbench evaluate TASK`: a command is made of the task that the name stands for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from workbench.cli.app import Commands, Entry, needed_packages, typer_app
from workbench.errors import WorkbenchError
from workbench.evaluation.folders import task_folders, trained_tasks
from workbench.runs.names import is_run


class TaskCommands(Commands):
    """A command per downstream task, with the task's own options; one that is no folder goes by its import path.

    Args:
        command_of: makes the function behind the command of a task.
        folders: the tasks that the command is for, by name; of others it says itself why it is not.
    """

    def __init__(self, command_of: Callable[[Any], Callable[..., None]], help: str, folders: dict[str, str]) -> None:
        told = {name: Entry(at, str(importlib.import_module(at).__doc__)) for name, at in folders.items()}
        super().__init__(told, help)
        self.command_of = command_of

    def _load(self, called: str, name: str, rest: list[str]) -> Commands | typer.Typer:
        if ":" not in name and name not in task_folders():
            self._check(called, name)
        with needed_packages(f"{called} {name}"):
            from workbench.evaluation.finding import find_task

            # the options are the task's own, so its code runs before they are read
            return typer_app(self.command_of(find_task(name, trust="--trust" in rest, run=_run_among(rest))))


def _run_among(words: Sequence[str]) -> Path | None:
    """The run that a command line is about."""
    return next((Path(word) for word in words if is_run(Path(word))), None)


def _finetune(task: Any) -> Callable[..., None]:
    from workbench.evaluation.finetuning import fine_tune
    from workbench.evaluation.seeds import fine_tune_seeds

    if task.tuning is None:
        raise WorkbenchError(
            f"the task {task.name} has nothing to train; measure a pretrained run: workbench evaluate {task.name} RUN"
        )

    def finetune(tuning: Any) -> None:
        if tuning.seeds > 1:
            fine_tune_seeds(task, tuning)
        else:
            fine_tune(task, tuning)

    return _told(finetune, tuning=task.tuning)


def _evaluate(task: Any) -> Callable[..., None]:
    from workbench.evaluation.evaluating import evaluate as evaluate_run

    def evaluate(scoring: Any) -> None:
        evaluate_run(task, scoring)

    return _told(evaluate, scoring=task.scoring)


def _told(function: Callable[..., None], **options: type) -> Callable[..., None]:
    """The function with the class of its options, whose docstring is the command's help."""
    function.__annotations__ = dict(options)
    (function.__doc__,) = (kind.__doc__ for kind in options.values())
    return function


finetune = TaskCommands(
    _finetune, "Fine-tune a pretrained run on a task (or on one of yours: package.module:Class).", trained_tasks()
)
evaluate = TaskCommands(
    _evaluate, "Evaluate a run on a task; writes a JSON file into the run's evaluations/.", task_folders()
)
