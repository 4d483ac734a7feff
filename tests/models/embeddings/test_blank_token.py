"""The embedding `blank_token`: places in blanks are added; without any, all rows have place 0."""

from __future__ import annotations

import torch

from tests.contracts.cases import EmbeddingCase
from workbench.models.embeddings.blank_token import BlankTokenEmbedding

CASE = EmbeddingCase(
    {"hidden_size": 8, "dropout": 0.0},
    {"masked": "hidden tokens have an id of their own", "frozen": "every parameter is trained"},
    content="input_ids",
)


def test_places_in_blanks_are_added_and_none_are_the_text() -> None:
    embedding = BlankTokenEmbedding(8, 10, 4, block_positions=3, dropout=0.0).eval()
    ids, places = torch.tensor([1, 2, 7]), torch.tensor([0, 1, 2])
    fields = {"input_ids": ids, "position_ids": torch.tensor([0, 1, 1])}
    summed = embedding.token.weight[ids] + embedding.position.weight[[0, 1, 1]]
    table = embedding.extra["block_ids"].weight
    torch.testing.assert_close(embedding({**fields, "block_ids": places}), summed + table)
    torch.testing.assert_close(embedding(fields), summed + table[:1])
