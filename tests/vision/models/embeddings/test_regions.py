"""The embedding `vision.regions`."""

from __future__ import annotations

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import FEATURES

CASE = EmbeddingCase(
    {"hidden_size": 8, "feature_size": FEATURES, "dropout": 0.0}, {"frozen": "every parameter is trained"}
)
