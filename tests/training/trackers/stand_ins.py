"""Stand-ins for the libraries of trackers: modules that keep what they get."""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from tests.contracts.cases import Curves


class _Run:
    """A run of a library: the methods that trackers call."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.curves, self.open = config, defaultdict(list), True

    def log(self, metrics: dict[str, float], step: int) -> None:
        assert self.open
        for name, value in metrics.items():
            self.curves[name].append((step, value))

    def finish(self, **_: Any) -> None:
        self.open = False

    def save(self, path: str, **_: Any) -> None:
        assert path.endswith("recipe.yaml")


class Runs:
    """The runs of a library, by name."""

    def __init__(self) -> None:
        self.runs: dict[str, _Run] = {}

    def opened(self, name: str, config: dict[str, Any]) -> _Run:
        run = self.runs.setdefault(name, _Run(config))
        run.open = True
        return run

    def read(self) -> list[tuple[dict[str, Any], Curves]]:
        assert not any(run.open for run in self.runs.values())
        return [(run.config, run.curves) for run in self.runs.values()]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **has: Any) -> None:
    """Put a module of this name in place of a library."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(has)
    monkeypatch.setitem(sys.modules, name, module)
