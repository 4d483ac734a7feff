"""The layer `co`."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

CASE = LayerCase({"streams": ["text", "image"], "num_heads": 2})
