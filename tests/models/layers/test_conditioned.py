"""The layer `conditioned`, compared with its equation sequence by sequence."""

from __future__ import annotations

import torch

from tests.contracts.cases import LayerCase
from tests.models.conftest import stream
from workbench.models.context import Context
from workbench.models.layers.conditioned import ConditionedLayer
from workbench.sequences.batch import Batch

CASE = LayerCase({"stream": "text", "of": "image"}, {"attention": "it attends to nothing"})
LENGTHS, OF = [3, 0, 5, 1], [2, 4, 0, 1]


def test_each_row_gets_the_last_row_of_the_other_stream() -> None:
    torch.manual_seed(0)
    made = ConditionedLayer("text", "image", {"text": 4, "image": 6})
    hidden = {"text": torch.randn(9, 4), "image": torch.randn(7, 6)}
    found = made(hidden, Context(Batch({"text": stream(LENGTHS), "image": stream(OF)})))
    assert found["image"] is hidden["image"]
    each = zip(hidden["text"].split(LENGTHS), hidden["image"].split(OF), found["text"].split(LENGTHS), strict=True)
    for rows, other, got in each:
        vector = other[-1] if len(other) else torch.zeros(6)
        torch.testing.assert_close(got, rows + made.linear.weight @ vector)


def test_a_stream_without_the_other_passes() -> None:
    made = ConditionedLayer("text", "image", {"text": 4, "image": 6})
    hidden = {"text": torch.randn(3, 4)}
    assert made(hidden, Context(Batch({"text": stream([3])}))) is hidden
