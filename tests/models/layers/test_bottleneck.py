"""The layer `bottleneck`; tests/interop/families/test_mobilebert.py compares it with Hugging Face's."""

from __future__ import annotations

from tests.contracts.cases import LayerCase

CASE = LayerCase({"stream": "text", "num_heads": 2, "bottleneck_size": 8, "feed_forwards": 2, "norm": "affine"})
