"""The layer `tap`."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

CASE = LayerCase({"name": "here"}, {"attention": "it attends to nothing"})
