"""How kernels treat score_biases: a user's without a score_mod, and wrong ones."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from tests.contracts.attention_inputs import HEADS, SIZE, attended, batch, rows
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.attention import call
from workbench.models.attention.call import attend, choose, use_kernel
from workbench.models.attention.request import Request
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias
from workbench.models.context import Context
from workbench.models.score_biases.alibi import AlibiBias


class Content(ScoreBias):
    """What a user may write: a term of contents, places and a field, without a score_mod."""

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.towards = torch.nn.Parameter(torch.linspace(-1, 1, num_heads * head_size).view(num_heads, 1, head_size))

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        q_types, k_types = pair.field("token_type_ids")
        near = (pair.q_places[:, :, None] - pair.k_places[:, None, :]).abs() < 3
        content = (pair.q * self.towards).sum(-1, keepdim=True) * pair.k.mean(-1).unsqueeze(-2)
        return content * (q_types[:, :, None] == k_types[:, None, :])[:, None] + near[:, None]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
def test_a_term_without_a_score_mod_is_added(streams: tuple[str, ...], plain: bool) -> None:
    expected = attended(Content(HEADS, SIZE), "dense", streams, plain)
    assert not torch.allclose(expected[0], attended(None, "dense", streams, plain)[0], atol=1e-3)
    for found, wanted in zip(attended(Content(HEADS, SIZE), "padded", streams, plain), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def request(score_bias: ScoreBias) -> Request:
    layout = Context(batch()).layout("text")
    q, k, v = (rows(layout.rows, i) for i in range(3))
    return Request(q, k, v, layout, layout, score_bias=score_bias)


@pytest.mark.parametrize("kernel", ["flex", "varlen"])
def test_a_forced_kernel_refuses_what_it_would_leave_out(kernel: str) -> None:
    with use_kernel(kernel), pytest.raises(WorkbenchError, match=r"cannot do .*allowed: padded, dense"):
        choose(request(Content(HEADS, SIZE)))


def test_what_flex_cannot_do_is_done_otherwise_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flex = call.KERNELS["flex"]
    anywhere = call.Kernel("flex", flex.run, lambda request: True, flex.lacks)
    monkeypatch.setattr(call, "KERNELS", {"flex": anywhere, "padded": call.KERNELS["padded"]})
    monkeypatch.setattr(call, "_chosen", {})
    caplog.set_level(logging.INFO)
    assert choose(request(AlibiBias(HEADS))).name == "flex"
    assert choose(request(Content(HEADS, SIZE))).name == "padded"
    assert "flex cannot do the score bias Content, which has no score_mod" in caplog.text


@pytest.mark.parametrize("kernel", ["dense", "padded"])
def test_a_term_of_another_shape_is_refused(kernel: str) -> None:
    class Flat(ScoreBias):
        def forward(self, pair: QueryKeyGrid) -> Tensor:
            return torch.zeros(pair.q.shape[:3])

    asked = request(Flat())
    with pytest.raises(WorkbenchError, match=r"allowed: a tensor \[batch or 1, heads"):
        call.KERNELS[kernel].run(asked)


def test_a_field_that_no_stream_has_is_named() -> None:
    class Wrong(ScoreBias):
        def forward(self, pair: QueryKeyGrid) -> Tensor:
            return pair.field("token_type_id")[0]

    asked = request(Wrong())
    with pytest.raises(WorkbenchError, match="token_type_ids"):
        choose(asked).run(asked)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("part", ["alibi", "buckets", "content", "relative"])
def test_a_term_of_fields_alone_is_computed_once_for_all_layers(part: str, learns: bool) -> None:
    """As long as nothing learns, and only where queries and keys, which differ from layer to layer, do not matter."""
    named = part != "content"
    score_bias = build("score_bias", part, "", num_heads=HEADS, head_size=SIZE) if named else Content(HEADS, SIZE)
    torch.manual_seed(0)
    for parameter in score_bias.parameters():
        torch.nn.init.normal_(parameter)
    runs: list[int] = []
    score_bias.register_forward_hook(lambda *_: runs.append(1))
    layout = Context(batch()).layout("text")
    with torch.set_grad_enabled(learns):
        found, counts = [], [0]
        for layer in layers(layout.rows):
            found.append(attend(*layer, layout, layout, score_bias=score_bias)[0])
            counts.append(len(runs))
        with use_kernel("dense"):
            expected = [attend(*layer, layout, layout, score_bias=score_bias)[0] for layer in layers(layout.rows)]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert counts[2] == counts[1] * (1 if score_bias.by_fields and not learns else 2)
    assert score_bias.by_fields == (part in ("alibi", "buckets"))


def layers(count: int) -> list[list[Tensor]]:
    """Queries, keys and values of two layers."""
    return [[rows(count, seed + i) for i in range(3)] for seed in (0, 3)]
