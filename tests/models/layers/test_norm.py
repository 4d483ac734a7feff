"""The layer `norm`."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

_EXCUSED = {"attention": "it attends to nothing"}
CASES = {"": LayerCase({"stream": "text"}, _EXCUSED), "no bias": LayerCase({"stream": "text", "bias": False}, _EXCUSED)}
