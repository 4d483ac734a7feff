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


def task_folders() -> dict[str, str]:
    """Name -> the package that the task's folder is: every `evaluation/<task>/`, the core's first."""
    found: dict[str, str] = {}
    for package in SHIPPED:
        room = f"{package}.evaluation"
        if is_module(room):
            folders = [m.name for m in pkgutil.iter_modules(importlib.import_module(room).__path__) if m.ispkg]
            found |= {name.replace("_", "-"): f"{room}.{name}" for name in sorted(folders)}
    return found


def trained_tasks() -> dict[str, str]:
    """Those that a run can be fine-tuned for: their class says with which options (`DownstreamTask.tuning`).

    The class is read, not imported: that takes seconds, and this is for the help of a command.
    """
    return {name: place for name, place in task_folders().items() if "tuning" in _stated(place)}


def options_of_task(place: str, which: str) -> type[Any] | None:
    """The class of a task's options, from the `options.py` of its folder: the task itself takes seconds to import.

    Args:
        which: `tuning` or `scoring` (`DownstreamTask`).
    """
    name = _stated(place).get(which)
    if name is None or not is_module(f"{place}.options"):
        return None
    found = getattr(importlib.import_module(f"{place}.options"), name, None)
    return found if isinstance(found, type) else None


def _stated(place: str) -> dict[str, str]:
    """The values of a task's class that are names, read without importing it: `{"tuning": "ClassifyTuning"}`."""
    found = importlib.util.find_spec(f"{place}.task")
    if found is None or found.origin is None:
        return {}
    classes = [node for node in ast.parse(Path(found.origin).read_bytes()).body if isinstance(node, ast.ClassDef)]
    stated: dict[str, str] = {}
    for node in (node for each in classes for node in each.body if isinstance(node, ast.Assign | ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Name):
                stated[target.id] = node.value.id
    return stated
