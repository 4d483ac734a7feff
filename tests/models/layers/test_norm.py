"""The layer `norm`."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

CASE = LayerCase({"stream": "text"}, {"attention": "it attends to nothing"})
