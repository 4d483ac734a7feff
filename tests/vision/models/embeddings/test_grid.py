"""The embedding `vision.grid`."""

from __future__ import annotations

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import GRID

CASE = EmbeddingCase(
    {"hidden_size": 8, "backbone": "test_efficientnet", "size": 64, "grid": GRID, "dropout": 0.0},
    {"no rows": "every image has the same number of rows"},
    content="pixels",
)
