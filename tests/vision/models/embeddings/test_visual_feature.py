"""The embedding `vision.visual_feature`."""

from __future__ import annotations

import math

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import FEATURES
from vision.models.embeddings.visual_feature import VisualFeatureEmbedding, box_waves
from workbench.core.errors import WorkbenchError

CASE = EmbeddingCase({"hidden_size": 8, "feature_size": FEATURES, "waves": 2}, {"frozen": "every parameter is trained"})


def test_the_waves_of_a_box() -> None:
    numbers = (0.35, 0.6, 0.3, 0.4)  # centre, width, height
    wanted = []
    for number in numbers:
        angles = [100 * number / 1000 ** (k / 3) for k in range(3)]
        wanted += [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    found = box_waves(torch.tensor([[0.2, 0.4, 0.5, 0.8]], dtype=torch.float64), 3)
    torch.testing.assert_close(found, torch.tensor([wanted], dtype=torch.float64))


def test_features_of_another_size_are_named() -> None:
    with pytest.raises(WorkbenchError, match="features have 5 numbers, the embedding's feature_size is 6"):
        VisualFeatureEmbedding(8, 6)({"features": torch.zeros(2, 5), "boxes": torch.zeros(2, 4)})


def test_dropout_is_of_what_the_map_reads() -> None:
    """No number of the result is dropped; what the map reads is, the waves and the feature alike."""
    embedding = VisualFeatureEmbedding(64, 6, waves=2, dropout=0.5)
    torch.nn.init.ones_(embedding.combine.weight)
    torch.nn.init.constant_(embedding.combine.bias, 100.0)
    fields = {"features": torch.full((8, 6), 2.0), "boxes": torch.zeros(8, 4)}  # waves: 8 zeros (sines), 8 ones
    torch.manual_seed(0)
    trained, wanted = embedding(fields), embedding.eval()(fields)
    torch.testing.assert_close(wanted, torch.full((8, 64), 120.0))
    assert (trained == trained[:, :1]).all()  # each number of a row reads the same
    kept = trained[:, 0] - 100
    assert len(kept.unique()) > 1
    assert (kept % 2 == 0).all()  # what is kept counts twice: 2 for a wave, 4 for a feature's number
    assert (kept % 4 != 0).any()  # an odd number of waves
