"""The downstream tasks that come with the workbench, found without importing them."""

from __future__ import annotations

import importlib
import pkgutil

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
