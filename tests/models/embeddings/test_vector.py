"""The embedding `vector`."""

from __future__ import annotations

import torch

from tests.contracts.cases import EmbeddingCase
from workbench.models.embeddings.vector import VectorEmbedding

CASE = EmbeddingCase(
    {"hidden_size": 8, "dropout": 0.0},
    {"masked": "it knows no row from another", "frozen": "every parameter is trained"},
    content="input_ids",
)


def test_every_row_is_the_vector() -> None:
    embedding = VectorEmbedding(8, dropout=0.0)
    embedding.initialise(0.02)
    rows = embedding({"input_ids": torch.tensor([3, 0, 5])})
    assert torch.equal(rows, embedding.vector.expand(3, -1))
    assert 0 < float(embedding.vector.detach().abs().max()) < 0.2
    assert float(VectorEmbedding(4000, dropout=0.5)({"input_ids": torch.tensor([0])}).abs().sum()) == 0.0
