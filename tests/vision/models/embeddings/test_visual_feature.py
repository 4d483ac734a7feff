"""The embedding `vision.visual_feature`."""

from __future__ import annotations

import math

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import FEATURES
from vision.images.box_numbers import box_waves
from vision.models.embeddings.visual_feature import VisualFeature
from workbench.errors import WorkbenchError

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
        VisualFeature(8, 6)({"features": torch.zeros(2, 5), "boxes": torch.zeros(2, 4)})
