"""The downstream tasks that come with the workbench, found without importing them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path

from workbench.parts.building import SHIPPED
from workbench.parts.modules import is_module


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
    return {name: place for name, place in task_folders().items() if _is_trained(place)}


def _is_trained(place: str) -> bool:
    found = importlib.util.find_spec(f"{place}.task")
    if found is None or found.origin is None:
        return False
    classes = [node for node in ast.parse(Path(found.origin).read_bytes()).body if isinstance(node, ast.ClassDef)]
    stated = [node for each in classes for node in each.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = [name for node in stated for name in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return any(isinstance(name, ast.Name) and name.id == "tuning" for name in names)
