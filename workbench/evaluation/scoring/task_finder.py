"""Finds a downstream task by its name (a file `evaluation/tasks/<task>.py`) or its import path."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from workbench.components.build_context import note
from workbench.components.trust import allow, code_checksums, import_named
from workbench.core.errors import WorkbenchError, unknown
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.task_modules import predicting_tasks, task_modules
from workbench.runs.folder import read_recipe, trust_run
from workbench.runs.loaded_run import LoadedRun

TASK_CODE = "task"
"""The key of a third-party task's files in a result's `read`."""


def find_task(name: str, *, trust: bool = False, run: Path | None = None) -> DownstreamTask[Any, Any]:
    """The task of this name, or of an import path `package.module:Class`.

    Args:
        trust: whether code that is not installed may be imported (from the current folder).
        run: the run that it is for. The task's imports are looked up there first, like the run's own components.

    Raises:
        WorkbenchError: there is none, its code is not trusted, or it is no downstream task.
    """
    if ":" in name:
        if run is not None:
            trust_run(run, read_recipe(run), trust)
        allow([name], Path.cwd(), f"the task {name!r}", trust=trust)
        return _task_of(import_named("task", name), name)
    modules = task_modules()
    if name not in modules:
        raise unknown("task", name, [*modules, "package.module:Class"])
    module = importlib.import_module(modules[name])
    own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    (task,) = (c for c in own if issubclass(c, DownstreamTask))
    return _task_of(task, name)


def fitting_task(loaded: LoadedRun, place: Path) -> DownstreamTask[Any, Any]:
    """The task that predicts with an objective of the run's own class.

    Raises:
        WorkbenchError: there is none, or there are several.
    """
    fitting = fitting_tasks(loaded)
    if len(fitting) == 1:
        return fitting[0]
    names = [task.name for task in fitting] or list(predicting_tasks())
    what = "several heads that predict" if fitting else "no head that was fine-tuned for a task"
    raise WorkbenchError(f"{place} has {what}; name the task: {', '.join(names)}")


def fitting_tasks(loaded: LoadedRun) -> list[DownstreamTask[Any, Any]]:
    """The tasks that predict with an objective of a class that the run has."""
    kinds = {type(placed.objective) for task in loaded.tasks.values() for placed in task.objectives}
    rooms = {kind.__module__.partition(".")[0] for kind in kinds}
    near = [find_task(name) for name, at in predicting_tasks().items() if at.partition(".")[0] in rooms]
    return [task for task in near if getattr(task, "objective", None) in kinds]


def note_own_code(task: DownstreamTask[Any, Any]) -> str:
    """The import path of a task that does not come with the workbench, "" of one that does. The checksums of its files
    are noted as what a result has read: with other code its numbers may mean something else."""
    module, name = type(task).__module__, type(task).__qualname__
    if module in task_modules().values():
        return ""
    path = f"{module}:{name}"
    for place, checksum in code_checksums(path).items():
        note(TASK_CODE, place, checksum)
    return path


def _task_of(found: Any, name: str) -> DownstreamTask[Any, Any]:
    if not (inspect.isclass(found) and issubclass(found, DownstreamTask)) or found is DownstreamTask:
        base = f"{DownstreamTask.__module__}.{DownstreamTask.__qualname__}"
        raise WorkbenchError(f"{name!r} is no downstream task; allowed: a class derived from {base}")
    return found()
