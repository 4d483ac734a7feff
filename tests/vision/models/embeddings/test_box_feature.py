"""The embedding `vision.box_feature`."""

from __future__ import annotations

import pytest
import torch

from vision.models.embeddings.box_feature import BoxFeatureEmbedding
from workbench.core.errors import WorkbenchError

EXCUSED = "it embeds four numbers of a box in a quarter of a feature each, and the contracts have features of six"


def test_the_features_and_the_place_of_each_box() -> None:
    torch.manual_seed(0)
    made = BoxFeatureEmbedding(6, 8, bins=4)
    features = torch.randn(2, 8)
    boxes = torch.tensor([[0.0, 0.3, 0.6, 1.0], [0.25, 0.0, 1.0, 0.74]])
    bins = [[0, 1, 2, 3], [1, 0, 3, 2]]
    found = made({"features": features, "boxes": boxes})
    for row, (x1, y1, x2, y2) in enumerate(bins):
        place = torch.cat([made.x.weight[x1], made.x.weight[x2], made.y.weight[y1], made.y.weight[y2]])
        torch.testing.assert_close(found[row], torch.tanh(made.project(features[row] + place)))
    found.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in made.parameters())


def test_sizes_that_cannot_be_are_named() -> None:
    with pytest.raises(WorkbenchError, match="feature_size = 6; allowed: a multiple of 4"):
        BoxFeatureEmbedding(8, 6)
    with pytest.raises(WorkbenchError, match="features have 5 numbers, the embedding's feature_size is 8"):
        BoxFeatureEmbedding(8, 8)({"features": torch.zeros(2, 5), "boxes": torch.zeros(2, 4)})
