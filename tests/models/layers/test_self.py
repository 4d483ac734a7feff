"""The layer `self`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import LayerCase
from workbench.core.errors import WorkbenchError
from workbench.models.layers.self import SelfLayer

OPTIONS = {"stream": "text", "num_heads": 2}
CASES = {
    "": LayerCase(OPTIONS),
    "no norm": LayerCase({**OPTIONS, "norm_place": "pre", "attention_norm": False, "window": 2, "rotary": 100.0}),
    "grouped": LayerCase(
        {"stream": "text", "num_heads": 4, "kv_heads": 2, "qk_norm": True, "rotary": 100.0, "qkv_bias": False}
    ),
    "experts": LayerCase(
        {**OPTIONS, "activation": "swiglu", "experts": {"count": 3, "top": 2, "size": 4, "shared": 4}}
    ),
}


def test_attention_without_a_norm_has_no_such_weights() -> None:
    layer = SelfLayer("text", {"text": 8}, 2, norm_place="pre", attention_norm=False)
    assert [name for name in layer.state_dict() if "norm" in name] == [
        "feed_forward.residual.norm.weight",
        "feed_forward.residual.norm.bias",
    ]
    rows = torch.randn(3, 8)
    assert layer.attention.residual.enter(rows) is rows


def test_a_norm_that_stands_behind_is_not_left_out() -> None:
    with pytest.raises(WorkbenchError, match=r"attention_norm: false .* add norm_place: pre"):
        SelfLayer("text", {"text": 8}, 2, attention_norm=False)
