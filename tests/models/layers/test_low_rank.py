"""The layer `low_rank`, compared with Linformer's formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import LayerCase
from tests.models.layers.test_linear import DOCS, LENGTHS, SIZES, batch_of
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.layers.low_rank import LowRankAttention, LowRankLayer

CASE = LayerCase(
    {"stream": "text", "num_heads": 2, "rank": 3, "max_positions": 8},
    excused={
        **dict.fromkeys(("score_bias", "window"), "its keys are sums of rows, without places"),
        "cache": "it reads whole texts",
    },
)


def made(max_positions: int = 100) -> LowRankLayer:
    torch.manual_seed(0)
    return LowRankLayer("text", SIZES, 2, max_positions, rank=5, dropout=0.0, attention_dropout=0.0).eval()


def dense(attention: LowRankAttention, rows: Tensor) -> Tensor:
    """The sums of values of one text."""
    q, k, v = attention.projected(rows)
    e, f = (table.weight[: len(rows)].T for table in (attention.key_map, attention.value_map))
    scores = torch.einsum("qhd,rn,nhd->hqr", q, e, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqr,rn,nhd->qhd", scores.softmax(-1), f, v)


def test_it_equals_the_formula() -> None:
    attention = made().attention.attention
    assert isinstance(attention, LowRankAttention)
    for table in (attention.key_map, attention.value_map):
        torch.nn.init.normal_(table.weight, std=0.1)
    rows = torch.randn(sum(LENGTHS), 16, requires_grad=True)
    context = Context(batch_of(causal=False))
    layout = context.layout("text")
    out, _ = attention.attended(rows, None, layout, layout, context, (("text",), ("text",)))
    expected = torch.cat([dense(attention, part) for part in rows.split([n for docs in DOCS for n in docs])])
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    found, wanted = (torch.autograd.grad(each.square().sum(), rows, retain_graph=True)[0] for each in (out, expected))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_longer_and_causal_texts_are_refused() -> None:
    rows = {"text": torch.randn(sum(LENGTHS), 16)}
    with pytest.raises(WorkbenchError, match=r"a text has 100 rows, .* for 99 \(max_positions\)"):
        made(99)(rows, Context(batch_of(causal=False)))
    with pytest.raises(WorkbenchError, match="these are causal"):
        made()(rows, Context(batch_of(causal=True)))
