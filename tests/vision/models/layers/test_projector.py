"""The layer `vision.projector`, compared with its formula row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.vision.models.layers.test_attention_pool import streams
from vision.models.layers.projector import ProjectorLayer
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context

EXCUSED = "it goes by links of a transform that the batches of the contracts don't have"
SIZES = {"wide": 5, "image": 3, "text": 2}


@torch.no_grad()
def test_rows_are_two_maps_of_those_of_the_image() -> None:
    torch.manual_seed(0)
    layer, batch = ProjectorLayer("wide", "image", SIZES), streams(wide=[2, 1], image=[3, 2], text=[1, 1])
    batch.streams["wide"].fields["of"] = torch.tensor([1, 2, 4])
    hidden = {name: torch.randn(batch.streams[name].rows, size) for name, size in SIZES.items()}
    found = layer(hidden, Context(batch))
    w = {name: value.double().numpy() for name, value in layer.state_dict().items()}
    for row, source in zip(found["wide"], (1, 2, 4), strict=True):
        inner = w["inner.weight"] @ hidden["image"][source].double().numpy() + w["inner.bias"]
        inner = np.array([x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in inner])
        np.testing.assert_allclose(row.numpy(), w["outer.weight"] @ inner + w["outer.bias"], atol=1e-6)
    assert found["image"] is hidden["image"]
    assert found["text"] is hidden["text"]


def test_without_an_image_nothing_is_projected_and_rows_need_their_links() -> None:
    layer, hidden = ProjectorLayer("wide", "image", SIZES, bias=False), {"text": torch.ones(2, 2)}
    assert layer(hidden, Context(streams(text=[2]))) is hidden
    assert layer.inner is not None
    assert layer.inner.bias is layer.outer.bias is None
    batch = streams(wide=[1], image=[1])
    with pytest.raises(WorkbenchError, match=r"add the transform vision\.projected"):
        layer({"wide": torch.ones(1, 5), "image": torch.ones(1, 3)}, Context(batch))


def test_without_an_activation_there_is_one_map() -> None:
    layer, batch = ProjectorLayer("wide", "image", SIZES, activation=None), streams(wide=[1], image=[2])
    batch.streams["wide"].fields["of"] = torch.tensor([1])
    image = torch.randn(2, 3)
    assert [name for name, _ in layer.named_parameters()] == ["outer.weight", "outer.bias"]
    found = layer({"wide": torch.zeros(1, 5), "image": image}, Context(batch))["wide"]
    torch.testing.assert_close(found[0], layer.outer.weight @ image[1] + layer.outer.bias)
