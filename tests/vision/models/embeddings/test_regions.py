"""The embedding `vision.regions`."""

from __future__ import annotations

import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import FEATURES
from vision.models.embeddings.regions import RegionsEmbedding

CASE = EmbeddingCase(
    {"hidden_size": 8, "feature_size": FEATURES, "dropout": 0.0}, {"frozen": "every parameter is trained"}
)


def test_images_are_distinguished() -> None:
    """The same region in another photograph has another vector, by what is learned of it; one photograph has none."""
    torch.manual_seed(0)
    embedding = RegionsEmbedding(8, FEATURES, images=2, norm_sum=False, dropout=0.0)
    torch.nn.init.normal_(embedding.image_types.table.weight)
    fields = {"features": torch.ones(2, FEATURES), "boxes": torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2)}
    first, second = embedding({**fields, "image_number": torch.tensor([0, 1])})
    added = embedding.image_types.table.weight
    torch.testing.assert_close(second - first, added[1] - added[0])
    assert not any(name.startswith("image_number") for name in RegionsEmbedding(8, FEATURES).state_dict())
