"""The layer `bottleneck`; tests/interop/families/test_mobilebert.py compares it with Hugging Face's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import LayerCase
from workbench.core.errors import WorkbenchError
from workbench.models.layers.bottleneck import BottleneckLayer

CASE = LayerCase({"stream": "text", "num_heads": 2, "bottleneck_size": 8, "feed_forwards": 2, "norm": "affine"})


def layer(**options: Any) -> BottleneckLayer:
    return BottleneckLayer("text", {"text": 12}, 2, bottleneck_size=8, **options)


@pytest.mark.parametrize("options", [{"norm_place": "pre"}, {"inner_size": 16}])
def test_options_without_effect_are_refused(options: Any) -> None:
    with pytest.raises(WorkbenchError, match="leave both options out"):
        layer(**options)


def test_the_output_has_the_bias_of_the_attention() -> None:
    attention = layer(qkv_bias=False).attention
    assert attention.query.bias is None
    assert attention.output.bias is not None
    attention = layer(qkv_bias=True, attention_bias=False).attention
    assert attention.value.bias is not None
    assert attention.output.bias is None


def test_gradients_of_what_reads_whole_rows_before_the_heads_are_summed() -> None:
    summed = layer(qk_norm=True).attention.tensor_cuts().summed
    shared = {f"{name}.{kind}" for name in ("shared", "shared_norm") for kind in ("weight", "bias")}
    assert {*summed} == {"query_norm.weight", "key_norm.weight", *shared}
