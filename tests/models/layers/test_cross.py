"""The layer `cross`."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from tests.contracts.cases import LayerCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.sequences.batch import Batch, Stream

CASE = LayerCase({"stream": "text", "to": "image", "num_heads": 2})


def test_cross_attention_alone_has_no_distances() -> None:
    spec = {"layer": "cross", **CASE.options, "self_attention": False, "window": 2}
    with pytest.raises(WorkbenchError, match="self_attention is false"):
        build("layer", spec, "", sizes={"text": 16, "image": 16})


def test_several_streams_are_read_as_one() -> None:
    """As if their rows were those of one stream, sequence by sequence."""
    torch.manual_seed(0)
    lengths = {"text": [2, 3], "image": [3, 1], "entity": [1, 2]}
    rows = {name: torch.randn(sum(of), 16) for name, of in lengths.items()}
    batch = Batch({name: stream(of) for name, of in lengths.items()})
    spec = {"layer": "cross", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    sizes = dict.fromkeys(lengths, 16)
    layer = build("layer", {**spec, "to": ["image", "entity"]}, "", sizes=sizes)
    got = layer(rows, Context(batch))
    one = build("layer", {**spec, "to": "image"}, "", sizes=sizes)
    one.load_state_dict(layer.state_dict())
    both = torch.cat([rows["image"][:3], rows["entity"][:1], rows["image"][3:], rows["entity"][1:]])
    joined = Batch({"text": stream([2, 3]), "image": stream([4, 3])})
    want = one({"text": rows["text"], "image": both}, Context(joined))
    torch.testing.assert_close(got["text"], want["text"], atol=1e-6, rtol=1e-5)
    assert torch.equal(got["image"], rows["image"])
    with pytest.raises(WorkbenchError, match="read as one sequence have one hidden size"):
        build("layer", {**spec, "to": ["image", "entity"]}, "", sizes={**sizes, "entity": 8})


def stream(lengths: list[int]) -> Stream:
    fields = {"input_ids": torch.zeros(sum(lengths), dtype=torch.long)}
    return Stream(fields, torch.tensor([0, *accumulate(lengths)]), lengths)
