"""The downstream tasks that come with the workbench, found without importing them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Any

from workbench.components.building import SHIPPED
from workbench.components.trust import is_module


def task_modules() -> dict[str, str]:
    """Name -> the module of the task: every file in the `evaluation/tasks/` of a package, the core's first."""
    found: dict[str, str] = {}
    for package in SHIPPED:
        room = f"{package}.evaluation.tasks"
        if is_module(room):
            files = [module.name for module in pkgutil.iter_modules(importlib.import_module(room).__path__)]
            found |= {name.replace("_", "-"): f"{room}.{name}" for name in sorted(files)}
    return found


def trained_tasks() -> dict[str, str]:
    """Those that a run can be fine-tuned for: their class says with which options (`DownstreamTask.tuning`).

    The class is read, not imported: that takes seconds, and this is for the help of a command.
    """
    return {name: place for name, place in task_modules().items() if "tuning" in _stated(place)}


def predicting_tasks() -> dict[str, str]:
    """Those that say something of inputs without right answers (`DownstreamTask.predicting`)."""
    return {name: place for name, place in task_modules().items() if "predicting" in _stated(place)}


VERBS = {"finetune": "tuning", "evaluate": "scoring", "predict": "predicting"}
"""The commands of a task, each with the member of its class that has the command's options."""


def verbs_of(place: str) -> list[str]:
    """The commands that a task has, read without importing it."""
    stated = _stated(place)
    return [verb for verb, options in VERBS.items() if options in stated]


def line_of(place: str) -> str:
    """The first line of the docstring of a task's module: the help of its commands."""
    return (ast.get_docstring(_tree(place)) or "").partition("\n")[0]


def options_of_task(place: str, which: str) -> type[Any] | None:
    """The class of a task's options, from the module that the task imports it from: the task itself takes seconds to
    import, its options must not.

    Args:
        which: `tuning`, `scoring` or `predicting` (`DownstreamTask`).
    """
    name = _stated(place).get(which)
    for node in _tree(place).body:
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            found = getattr(importlib.import_module(node.module), str(name), None)
            return found if isinstance(found, type) else None
    return None


def _stated(place: str) -> dict[str, str]:
    """The values of a task's class that are names, read without importing it: `{"tuning": "ClassifyTuning"}`."""
    classes = [node for node in _tree(place).body if isinstance(node, ast.ClassDef)]
    stated: dict[str, str] = {}
    for node in (node for each in classes for node in each.body if isinstance(node, ast.Assign | ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Name):
                stated[target.id] = node.value.id
    return stated


def _tree(place: str) -> ast.Module:
    """The code of a module, read without importing it."""
    found = importlib.util.find_spec(place)
    return ast.parse(Path(found.origin).read_bytes() if found and found.origin else b"")
