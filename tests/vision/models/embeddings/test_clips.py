"""The embedding `vision.clips`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import FEATURES
from vision.models.embeddings.clips import ClipsEmbedding
from workbench.core.errors import WorkbenchError

TRAINED = {"frozen": "every parameter is trained"}
OPTIONS = {"hidden_size": 8, "feature_size": FEATURES, "dropout": 0.0}
CASES = {
    "": EmbeddingCase(OPTIONS, TRAINED),
    "univl": EmbeddingCase({**OPTIONS, "feature_norm": True, "type_vector": True, "mask_vector": True}, TRAINED),
}


def test_what_does_not_fit_is_reported() -> None:
    clips = ClipsEmbedding(8, 4, max_positions=3)
    with pytest.raises(WorkbenchError, match="5 numbers, the embedding's feature_size is 4"):
        clips({"features": torch.zeros(2, 5), "position_ids": torch.arange(2)})
    with pytest.raises(WorkbenchError, match="a video has position 3, but the network has max_positions = 3"):
        clips({"features": torch.zeros(4, 4), "position_ids": torch.arange(4)})
