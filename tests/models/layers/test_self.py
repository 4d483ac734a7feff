"""The layer `self`."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

CASE = LayerCase({"stream": "text", "num_heads": 2})
