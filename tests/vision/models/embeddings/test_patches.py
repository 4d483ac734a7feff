"""The embedding `vision.patches`."""

from __future__ import annotations

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import GRID, PATCH

CASE = EmbeddingCase({"hidden_size": 8, "grid": GRID, "patch": PATCH, "norm": True}, content="patches")
