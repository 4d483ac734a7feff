"""The layer `vision.modality`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import LayerCase
from vision.models.layers.modality import ModalityLayer
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.sequences.batch import Batch

CASE = LayerCase({"streams": ["text", "image"]}, {"attention": "it has none", "window": "it has none"})


def test_each_stream_gets_its_own_vector() -> None:
    layer = ModalityLayer(["text", "image"], {"text": 4, "image": 3, "entity": 2})
    hidden = {"text": torch.ones(2, 4), "image": torch.zeros(5, 3), "entity": torch.ones(1, 2)}
    found = layer(hidden, Context(Batch({})))
    torch.testing.assert_close(found["text"], 1 + layer.vectors["text"].expand(2, 4))
    torch.testing.assert_close(found["image"], layer.vectors["image"].expand(5, 3))
    assert found["entity"] is hidden["entity"]


def test_a_stream_named_twice_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="a stream is named twice"):
        ModalityLayer(["text", "text"], {"text": 4})
