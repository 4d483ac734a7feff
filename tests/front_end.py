"""A stand-in of a notebook's front end: rich sees a notebook, and what IPython would display is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest


class CellOutput:
    """An output of a cell: its state, and how many states it has had."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data, self.states = data, 1

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.data, self.states = data, self.states + 1


@contextmanager
def in_a_notebook() -> Iterator[list[CellOutput]]:
    """A block that runs as if in a notebook; the outputs in their order."""
    outputs: list[CellOutput] = []

    def display(data: Any, *, raw: bool = False, display_id: bool = False) -> CellOutput:
        outputs.append(CellOutput(data if raw else data._repr_mimebundle_((), ())))
        return outputs[-1]

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rich.console._is_jupyter", lambda: True)
        patch.setitem(sys.modules, "IPython", ModuleType("IPython"))
        patch.setitem(sys.modules, "IPython.display", module)
        patch.setitem(sys.modules, "ipywidgets", None)
        yield outputs
