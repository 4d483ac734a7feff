"""The embedding `queries`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.queries import QueriesEmbedding

CASE = EmbeddingCase(
    {"hidden_size": 8, "count": 30},
    {"masked": "queries hold nothing to be hidden", "frozen": "every parameter is trained"},
    content="input_ids",
)


def test_a_stream_without_numbers_is_reported() -> None:
    with pytest.raises(WorkbenchError, match=r"add the transform queries"):
        QueriesEmbedding(8, 3)({"boxes": torch.zeros(2, 4)})
