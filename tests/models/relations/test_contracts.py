"""Contracts of every relation that a recipe can name, and of how kernels treat relations."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.models.attention import call
from workbench.models.attention.call import attend, choose, use_kernel
from workbench.models.attention.relation import Pair, Relation
from workbench.models.attention.request import Request
from workbench.models.context import Context
from workbench.parts.building import build, short_names
from workbench.sequences.batch import Batch, Stream

HEADS, SIZE = 3, 16
LENGTHS = {"text": [5, 1, 9, 3], "image": [4, 0, 4, 2]}
CASES: dict[str, dict[str, Any]] = {
    "alibi": {},
    "buckets": {"num_buckets": 8, "max_distance": 6},
    "buckets causal": {"num_buckets": 6, "max_distance": 5, "bidirectional": False},
}


class Content(Relation):
    """What a stranger may write: a term of contents, places and a field, without a score_mod."""

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.towards = torch.nn.Parameter(torch.linspace(-1, 1, num_heads * head_size).view(num_heads, 1, head_size))

    def forward(self, pair: Pair) -> Tensor:
        q_types, k_types = pair.field("token_type_ids")
        near = (pair.q_places[:, :, None] - pair.k_places[:, None, :]).abs() < 3
        content = (pair.q * self.towards).sum(-1, keepdim=True) * pair.k.mean(-1).unsqueeze(-2)
        return content * (q_types[:, :, None] == k_types[:, None, :])[:, None] + near[:, None]


def batch(kept: list[int] | None = None, plain: bool = False) -> Batch:
    """Streams with soft positions, or with plain ones; text has visibility integers."""
    g = torch.Generator().manual_seed(3)
    streams = {}
    for name, lengths in LENGTHS.items():
        fields = {"position_ids": torch.cat([torch.arange(n) for n in lengths])}
        if not plain:
            fields["position_ids"] = torch.randint(0, 20, (sum(lengths),), generator=g)
        if name == "text":
            fields["token_type_ids"] = torch.randint(0, 2, (sum(lengths),), generator=g)
            fields["rank"] = torch.randint(0, 3, (sum(lengths),), generator=g)
        chosen = range(len(lengths)) if kept is None else kept
        parts = {f: [t.split(lengths)[i] for i in chosen] for f, t in fields.items()}
        now = [lengths[i] for i in chosen]
        streams[name] = Stream({f: torch.cat(p) for f, p in parts.items()}, torch.tensor([0, *now]).cumsum(0), now)
    return Batch(streams)


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, HEADS, SIZE, generator=torch.Generator().manual_seed(seed))


def make(name: str) -> Relation:
    if name == "content":
        return Content(HEADS, SIZE)
    torch.manual_seed(0)
    spec = {"relation": name.split()[0], **CASES[name]}
    made: Relation = build("relation", spec, "", num_heads=HEADS, head_size=SIZE)
    return made


def attended(relation: Relation | None, kernel: str, streams: tuple[str, ...], plain: bool = False) -> list[Tensor]:
    """The result; with it, where a kernel has gradients on a CPU, those of q, k, v and of the relation's parameters."""
    layout = Context(batch(plain=plain)).layout(*streams)
    with_gradients = kernel != "flex"
    q, k, v = (rows(layout.rows, i).requires_grad_(with_gradients) for i in range(3))
    learned = list(relation.parameters()) if relation else []
    with use_kernel(kernel), torch.set_grad_enabled(with_gradients):
        out, _ = attend(q, k, v, layout, layout, relation=relation)
    if not with_gradients:
        return [out]
    total = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
    return [out, *torch.autograd.grad(total, [q, k, v, *learned])]


def test_every_relation_has_a_case() -> None:
    assert {name.split()[0] for name in CASES} == set(short_names("relation"))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
@pytest.mark.parametrize(
    ("name", "kernel"), [(n, k) for n in CASES for k in ("padded", "flex")] + [("content", "padded")]
)
def test_kernels_add_what_the_reference_adds(name: str, kernel: str, streams: tuple[str, ...], plain: bool) -> None:
    relation = make(name)
    expected = attended(relation, "dense", streams, plain)
    assert not torch.allclose(expected[0], attended(None, "dense", streams, plain)[0], atol=1e-3)
    for found, wanted in zip(attended(relation, kernel, streams, plain), expected, strict=False):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_packed_equals_alone(name: str) -> None:
    relation = make(name)
    together = Context(batch()).layout("text")
    q, k, v = (rows(together.rows, i) for i in range(3))
    out = attend(q, k, v, together, together, relation=relation)[0].split(LENGTHS["text"])
    for i, n in enumerate(LENGTHS["text"]):
        own = slice(together.starts[i], together.starts[i] + n)
        alone = Context(batch([i])).layout("text")
        found = attend(q[own], k[own], v[own], alone, alone, relation=relation)[0]
        torch.testing.assert_close(found, out[i], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_dropout_leaves_the_term(name: str) -> None:
    """Over many draws the mean of flex attention with dropout is its result without."""
    relation, layout = make(name), Context(batch()).layout("text")
    q, k, v = (rows(layout.rows, i) for i in range(3))
    torch.manual_seed(0)
    with use_kernel("flex"), torch.no_grad():
        exact = attend(q, k, v, layout, layout, relation=relation)[0]
        draws = torch.stack([attend(q, k, v, layout, layout, relation=relation, dropout=0.2)[0] for _ in range(100)])
    assert float(((draws.mean(0) - exact).abs() / (draws.std(0) / 10 + 1e-6)).mean()) < 1.3


def request(relation: Relation) -> Request:
    layout = Context(batch()).layout("text")
    q, k, v = (rows(layout.rows, i) for i in range(3))
    return Request(q, k, v, layout, layout, relation=relation)


@pytest.mark.parametrize("kernel", ["flex", "varlen"])
def test_a_forced_kernel_refuses_what_it_would_leave_out(kernel: str) -> None:
    with use_kernel(kernel), pytest.raises(WorkbenchError, match=r"cannot do .*allowed: padded, dense"):
        choose(request(make("content")))


def test_what_flex_cannot_do_is_done_otherwise_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flex = call.KERNELS["flex"]
    anywhere = call.Kernel("flex", flex.run, lambda request: True, flex.lacks)
    monkeypatch.setattr(call, "KERNELS", {"flex": anywhere, "padded": call.KERNELS["padded"]})
    monkeypatch.setattr(call, "_logged", set())
    caplog.set_level(logging.INFO)
    assert choose(request(make("alibi"))).name == "flex"
    assert choose(request(make("content"))).name == "padded"
    assert "flex cannot do the relation Content, which has no score_mod" in caplog.text


@pytest.mark.parametrize("kernel", ["dense", "padded"])
def test_a_term_of_another_shape_is_refused(kernel: str) -> None:
    class Flat(Relation):
        def forward(self, pair: Pair) -> Tensor:
            return torch.zeros(pair.q.shape[:3])

    asked = request(Flat())
    with pytest.raises(WorkbenchError, match=r"allowed: a tensor \[batch or 1, heads"):
        call.KERNELS[kernel].run(asked)


def test_a_field_that_no_stream_has_is_named() -> None:
    class Wrong(Relation):
        def forward(self, pair: Pair) -> Tensor:
            return pair.field("token_type_id")[0]

    asked = request(Wrong())
    with pytest.raises(WorkbenchError, match="token_type_ids"):
        choose(asked).run(asked)
