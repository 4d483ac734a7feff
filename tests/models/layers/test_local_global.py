"""The layer `local_global`; tests/interop/families/test_longformer.py compares it with Hugging Face's."""

from __future__ import annotations

import torch

from tests.contracts.cases import LayerCase
from tests.contracts.test_layers import SIZES, batch_of
from workbench.models.context import Context
from workbench.models.layers.local_global import LocalGlobalAttention, LocalGlobalLayer
from workbench.models.layers.self import SelfLayer

CASE = LayerCase({"stream": "text", "num_heads": 2, "window": 2})


def layer(**options: int) -> LocalGlobalLayer:
    torch.manual_seed(0)
    return LocalGlobalLayer("text", SIZES, 2, dropout=0.0, attention_dropout=0.0, **options).eval()


def test_global_projections_that_are_copies_change_nothing() -> None:
    """They begin as copies where a network starts from weights without them."""
    own, plain = layer(window=1), SelfLayer("text", SIZES, 2, dropout=0.0, attention_dropout=0.0, window=1).eval()
    loaded = own.load_state_dict(plain.state_dict(), strict=False)
    attention = own.attention.attention
    assert isinstance(attention, LocalGlobalAttention)
    assert {name.rpartition(".everywhere.")[2] for name in loaded.missing_keys} == {"qkv.weight", "qkv.bias"}
    batch, hidden = batch_of([0, 1, 2])
    expected = plain(hidden, Context(batch))["text"]
    assert not torch.allclose(own(hidden, Context(batch))["text"], expected, atol=1e-3)
    attention.fill_in({"qkv.weight", "qkv.bias", "output.weight", "output.bias"})
    torch.testing.assert_close(own(hidden, Context(batch))["text"], expected, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        attention.everywhere.qkv.weight.zero_()
    attention.fill_in({"qkv.weight", "everywhere.qkv.weight"})
    assert not attention.everywhere.qkv.weight.any()


def test_kept_weights_of_global_rows_are_theirs() -> None:
    own = layer(window=1)
    batch, hidden = batch_of([0, 1, 2])
    context = Context(batch, keep_attention=True)
    own(hidden, context)
    rows = hidden["text"][:5]
    attention = own.attention.attention
    assert isinstance(attention, LocalGlobalAttention)
    q, k, _ = attention.everywhere.projected(rows)
    expected = torch.softmax(torch.einsum("hd,khd->hk", q[0], k) * q.shape[-1] ** -0.5, -1)
    (record,) = context.attention
    torch.testing.assert_close(record.weights[0][:, 0], expected)
    assert not record.weights[0][:, 1, 3:].any()
    assert [w.shape[1:] for w in record.weights] == [(5, 5), (1, 1), (7, 7)]
