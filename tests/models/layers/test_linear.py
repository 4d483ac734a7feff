"""The layer `linear`, compared with the dense formulas of both papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.contracts.cases import LayerCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.attention.feature_maps import STABLE, orthogonal_rows
from workbench.models.context import Context
from workbench.models.layers.linear import LinearAttention, LinearLayer
from workbench.sequences.batch import Batch, Stream
from workbench.sequences.pattern import pattern_of

NONE = dict.fromkeys(("score_bias", "scale", "window"), "it has no scores")
CASES = {
    "": LayerCase({"stream": "text", "num_heads": 2}, excused=NONE),
    "favor": LayerCase({"stream": "text", "num_heads": 2, "features": "favor", "num_features": 12}, excused=NONE),
}
SIZES = {"text": 16}
LENGTHS = [150, 3, 90]
DOCS = [[100, 50], [3], [90]]


def made(**options: Any) -> LinearLayer:
    torch.manual_seed(0)
    return LinearLayer("text", SIZES, 2, dropout=0.0, **options).eval()


def batch_of(causal: bool, known: bool = True) -> Batch:
    """Three sequences, the first of two texts."""
    rows = [np.concatenate([np.full(n, number) for number, n in enumerate(docs)]) for docs in DOCS]
    fields = {"doc": np.concatenate(rows)}
    if causal:
        fields["rank"] = np.concatenate([np.arange(n) for docs in DOCS for n in docs])
    stream = Stream({n: torch.from_numpy(f) for n, f in fields.items()}, torch.tensor([0, *LENGTHS]).cumsum(0), LENGTHS)
    return Batch({"text": stream.knowing(pattern_of(LENGTHS, fields) if known else None)})


def features_of(attention: LinearAttention, rows: Tensor, of_queries: bool) -> Tensor:
    """Of one text [rows, heads, size], by the papers' formulas."""
    if not attention.favor:
        return F.elu(rows) + 1
    scaled = rows / rows.shape[-1] ** 0.25
    exponents = torch.einsum("rhd,fd->rhf", scaled, attention.projection) - scaled.square().sum(-1)[..., None] / 2
    most = exponents.amax(-1, keepdim=True) if of_queries else exponents.amax((0, 2), keepdim=True)
    return torch.exp(exponents - most.detach()) + STABLE


def dense(attention: LinearAttention, rows: Tensor, causal: bool) -> Tensor:
    """The sums of values of one text, with a matrix of all its pairs."""
    q, k, v = attention.projected(rows)
    scores = torch.einsum("qhf,khf->hqk", features_of(attention, q, True), features_of(attention, k, False))
    scores = scores.tril() if causal else scores
    return torch.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdim=True), v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("features", ["elu", "favor"])
def test_it_equals_the_dense_formula(features: str, causal: bool) -> None:
    attention = made(features=features, num_features=24).attention.attention
    assert isinstance(attention, LinearAttention)
    torch.nn.init.normal_(attention.qkv.weight)
    rows = torch.randn(sum(LENGTHS), 16, requires_grad=True)
    expected = torch.cat([dense(attention, part, causal) for part in rows.split([n for docs in DOCS for n in docs])])
    for known in (True, False):
        context = Context(batch_of(causal, known))
        layout = context.layout("text")
        out, _ = attention.attended(rows, None, layout, layout, context, (("text",), ("text",)))
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
    weights = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), rows)
    (found,) = torch.autograd.grad((out * weights).sum(), rows)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_random_features_estimate_softmax() -> None:
    torch.manual_seed(0)
    own = made(features="favor", num_features=4096).attention.attention
    assert isinstance(own, LinearAttention)
    rows = torch.randn(40, 16) / 2
    q, k, v = own.projected(rows)
    exact = F.scaled_dot_product_attention(*(part.transpose(0, 1) for part in (q, k, v))).transpose(0, 1)
    torch.testing.assert_close(dense(own, rows, False), exact, atol=0.02, rtol=0)


def test_random_rows_are_orthogonal_in_blocks() -> None:
    rows = orthogonal_rows(20, 8)
    directions = rows / rows.norm(dim=1, keepdim=True)
    for block in directions.split(8):
        torch.testing.assert_close(block @ block.T, torch.eye(len(block)), atol=1e-5, rtol=0)


def test_a_tree_and_a_prefix_are_refused() -> None:
    batch, layer = batch_of(False), made()
    rows = {"text": torch.randn(sum(LENGTHS), 16)}
    with pytest.raises(WorkbenchError, match="rows hide from others"):
        layer(rows, Context(batch.replace("text", branch=torch.ones(sum(LENGTHS), dtype=torch.long))))
    ranks = torch.cat([torch.arange(n).clamp_min(2) for n in LENGTHS])
    with pytest.raises(WorkbenchError, match="in another order"):
        layer(rows, Context(batch.replace("text", rank=ranks)))
    with pytest.raises(WorkbenchError, match=r"has no scores for attention_dropout = 0\.1"):
        made(attention_dropout=0.1)


@pytest.mark.parametrize("name", ["linear", "low_rank", "sparse_block"])
def test_keys_of_an_adapter_are_refused(name: str) -> None:
    more = {"max_positions": 200} if name == "low_rank" else {}
    layer = build("layer", {"layer": name, "stream": "text", "num_heads": 2, **more}, "layer", sizes=SIZES)
    layer.attention.attention.seen.register_forward_hook(lambda *_: None)
    with pytest.raises(WorkbenchError, match=r"reads no keys of an adapter \(prefix\)"):
        layer({"text": torch.randn(sum(LENGTHS), 16)}, Context(batch_of(False)))
