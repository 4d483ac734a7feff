"""The embedding `vision.projected`."""

from __future__ import annotations

import torch

from tests.contracts.cases import EmbeddingCase
from vision.models.embeddings.projected import ProjectedEmbedding

NOTHING = "it has no parameters"
CASE = EmbeddingCase(
    {"hidden_size": 8},
    {"gradients": NOTHING, "frozen": NOTHING, "masked": "all of its rows are 0"},
    content="input_ids",
)


def test_rows_are_zeros() -> None:
    assert torch.equal(ProjectedEmbedding(3)({"input_ids": torch.arange(2)}), torch.zeros(2, 3))
