"""The layer `joint_norm`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import LayerCase
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.layers.joint_norm import JointNormLayer
from workbench.sequences.batch import Batch

CASE = LayerCase({"streams": ["text", "image"]}, {"attention": "it has none", "window": "it has none"})


def test_all_its_streams_have_one_norm() -> None:
    layer = JointNormLayer(["text", "image"], {"text": 4, "image": 4, "entity": 2})
    torch.nn.init.normal_(layer.norm.weight)
    rows = torch.randn(5, 4)
    entity = torch.ones(1, 2)
    found = layer({"text": rows[:2], "image": rows[2:], "entity": entity}, Context(Batch({})))
    wanted = torch.nn.functional.layer_norm(rows, (4,), layer.norm.weight, layer.norm.bias, 1e-12)
    torch.testing.assert_close(torch.cat([found["text"], found["image"]]), wanted)
    assert found["entity"] is entity


def test_streams_of_several_widths_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="several widths"):
        JointNormLayer(["text", "image"], {"text": 4, "image": 3})
