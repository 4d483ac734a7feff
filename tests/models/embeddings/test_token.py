"""The embedding `token`."""

from __future__ import annotations

from tests.contracts.cases import EmbeddingCase

CASE = EmbeddingCase(
    {"hidden_size": 8, "dropout": 0.0},
    {"masked": "hidden tokens have an id of their own", "frozen": "every parameter is trained"},
    content="input_ids",
)
