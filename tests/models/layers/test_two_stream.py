"""The layer `two_stream`: rows of the query stream read the content, and change nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import LayerCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import use_kernel
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layers.self import SelfLayer
from workbench.models.layers.two_stream import TwoStreamLayer
from workbench.sequences.batch import Batch, Stream

CASE = LayerCase(
    {"stream": "text", "query": "image", "num_heads": 2},
    {"window": "rows of the query stream have positions, and no places among the others"},
)
LENGTHS = {"text": [6, 3], "query": [2, 1]}
TARGETS = torch.tensor([4, 1, 7])  # rows of the text
RANK = torch.tensor([0, 2, 0, 0, 1, 0, 0, 1, 0])
OPTIONS: dict[str, Any] = {"score_bias": "relative", "dropout": 0.0, "attention_dropout": 0.0, "attention_bias": False}


def batch() -> Batch:
    """Two texts, in which the fifth, then the second, and the second row are predicted."""
    places = torch.cat([torch.arange(n) for n in LENGTHS["text"]])
    text = {"position_ids": places, "rank": RANK}
    query = {"position_ids": places[TARGETS], "rank": RANK[TARGETS] - 1}
    fields = {"text": text, "query": query}
    return Batch({name: Stream(fields[name], torch.tensor([0, *n]).cumsum(0), n) for name, n in LENGTHS.items()})


def made(**options: Any) -> tuple[TwoStreamLayer, dict[str, Tensor]]:
    torch.manual_seed(0)
    layer = TwoStreamLayer("text", "query", {"text": 32, "query": 32}, 2, **{**OPTIONS, **options}).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer, {name: torch.randn(sum(n), 32) for name, n in LENGTHS.items()}


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_without_queries_it_is_the_layer_self(norm_place: str) -> None:
    layer, hidden = made(norm_place=norm_place)
    alone = SelfLayer("text", {"text": 32}, 2, norm_place=norm_place, **OPTIONS).eval()  # type: ignore[arg-type]
    alone.load_state_dict(layer.state_dict())
    context = Context(batch())
    expected = alone(hidden, context)["text"]
    torch.testing.assert_close(layer(hidden, context)["text"], expected, atol=1e-5, rtol=1e-5)
    del hidden["query"]
    torch.testing.assert_close(layer(hidden, context)["text"], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_a_query_reads_the_rows_before_its_token_in_the_order(norm_place: str) -> None:
    """Each query with these rows alone, and their positions."""
    layer, hidden = made(norm_place=norm_place)
    found = layer(hidden, Context(batch()))["query"]
    for number, row in enumerate(TARGETS.tolist()):
        here = slice(0, 6) if row < 6 else slice(6, 9)
        rank = RANK[here]
        seen = rank < RANK[row]
        rows = hidden["text"][here][seen]
        places = torch.arange(len(rank))[seen]
        keys = Stream({"position_ids": places}, torch.tensor([0, len(rows)]), [len(rows)])
        query = Stream({"position_ids": torch.tensor([row - here.start])}, torch.tensor([0, 1]), [1])
        one = Context(Batch({"text": keys, "query": query}))
        alone = layer({"text": rows, "query": hidden["query"][[number]]}, one)["query"]
        torch.testing.assert_close(found[[number]], alone, atol=1e-5, rtol=1e-5)


def test_nothing_of_a_target_reaches_its_query() -> None:
    """The gradient of a query towards the rows of the text is there for those it sees, and for no other."""
    layer, hidden = made()
    text = hidden["text"].requires_grad_()
    out = layer(hidden, Context(batch()))["query"]
    for number, row in enumerate(TARGETS.tolist()):
        (gradient,) = torch.autograd.grad(out[number].square().sum(), text, retain_graph=True)
        here = (torch.arange(9) < 6) == (row < 6)
        assert (gradient.abs().sum(1) > 0).tolist() == (here & (RANK[row] > RANK)).tolist()


@pytest.mark.parametrize("score_bias", ["relative", "buckets", None])
def test_kernels_agree_outputs_and_gradients(score_bias: str | None) -> None:
    layer, hidden = made(score_bias=score_bias)
    results = []
    for kernel in ("dense", "padded"):
        leaves = {name: rows.clone().requires_grad_() for name, rows in hidden.items()}
        with use_kernel(kernel):
            out = layer(leaves, Context(batch()))
        total = sum((rows * torch.linspace(-1, 1, rows.numel()).view_as(rows)).sum() for rows in out.values())
        grads = torch.autograd.grad(total, [*leaves.values(), *layer.parameters()])
        results.append([*out.values(), *grads])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("score_bias", ["buckets", None])
@torch.no_grad()
def test_the_kernel_of_other_machines_agrees(score_bias: str | None) -> None:
    layer, hidden = made(score_bias=score_bias)
    with use_kernel("dense"):
        expected = layer(hidden, Context(batch()))
    with use_kernel("flex"):
        found = layer(hidden, Context(batch()))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_queries_see_what_is_remembered_and_are_not_remembered() -> None:
    """Two segments of one text, whose second is permuted, are the whole text where the first is context."""
    layer, hidden = made()
    whole, first, second = batch(), 3, 3
    parts = {name: rows.split(LENGTHS[name]) for name, rows in hidden.items()}
    fields, query = whole.streams["text"].fields, whole.streams["query"]
    fields["rank"] = torch.tensor([0, 0, 0, 0, 2, 1, 0, 0, 0])
    query.fields = {"position_ids": torch.tensor([5, 4, 1]), "rank": torch.tensor([0, 1, 0])}
    expected = layer(hidden, Context(whole))

    def piece(begin: int, end: int) -> Stream:
        return Stream({f: t[begin:end] for f, t in fields.items()}, torch.tensor([0, end - begin]), [end - begin])

    context = Context(Batch({"text": piece(0, first)}), cache=KVCache("rows"))
    layer({"text": parts["text"][0][:first]}, context)
    asked = Stream({f: t[:2] for f, t in query.fields.items()}, torch.tensor([0, 2]), [2])
    on = Context(Batch({"text": piece(first, first + second), "query": asked}), cache=context.updated_cache)
    out = layer({"text": parts["text"][0][first:], "query": parts["query"][0]}, on)
    torch.testing.assert_close(out["text"], expected["text"][3:6], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out["query"], expected["query"][:2], atol=1e-5, rtol=1e-5)
    assert [*on.updated_cache.streams] == ["text"]
    assert {at: [*kept] for at, kept in on.updated_cache.kept.items()} == {"0.0": ["text"]}


@pytest.mark.parametrize(
    ("change", "sizes", "message"),
    [({"window": 2}, (32, 32), "window = 2"), ({}, (32, 16), "hidden_size must be equal; found 32 and 16")],
)
def test_what_two_streams_cannot_share_is_refused(change: dict[str, Any], sizes: tuple[int, int], message: str) -> None:
    spec = {"layer": "two_stream", "stream": "text", "query": "query", "num_heads": 2, **change}
    with pytest.raises(WorkbenchError, match=message):
        build("layer", spec, "", sizes=dict(zip(("text", "query"), sizes, strict=True)))
