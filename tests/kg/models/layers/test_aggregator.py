"""The aggregator on jagged rows against a plain loop, and at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kg.models.layers.aggregator import AggregatorLayer
from tests.contracts.cases import LayerCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

CASE = LayerCase({"streams": ["text", "entity"], "num_heads": [2, 2]})

SIZES = {"text": 12, "entity": 8}


def aggregator(**options) -> AggregatorLayer:
    torch.manual_seed(0)
    layer = AggregatorLayer(["text", "entity"], SIZES, [3, 2], intermediate_size=20, **options)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def context(lengths: list[int], tokens: list[list[int]]) -> Context:
    sequences = []
    for n, places in zip(lengths, tokens, strict=True):
        entity = {
            "entity_ids": np.ones(len(places), np.int64),
            "token": Rows("text", np.array(places, np.int64), bound=True),
        }
        sequences.append(Sequence({"text": text_fields(np.arange(n)), "entity": entity}, (0,)))
    return Context(collate(sequences))


def states(lengths: list[int], tokens: list[list[int]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "text": torch.randn(sum(lengths), SIZES["text"], generator=generator),
        "entity": torch.randn(sum(map(len, tokens)), SIZES["entity"], generator=generator),
    }


def attention(block, rows: Tensor, heads: int) -> Tensor:
    """One sequence, head by head."""
    if not len(rows):
        return rows
    q, k, v = block.attention.qkv(rows).chunk(3, -1)
    size = q.shape[1] // heads
    parts = []
    for h in range(heads):
        s = slice(h * size, (h + 1) * size)
        parts.append(torch.softmax(q[:, s] @ k[:, s].T / size**0.5, -1) @ v[:, s])
    return block.residual.norm(rows + block.attention.output(torch.cat(parts, -1)))


def oracle(layer: AggregatorLayer, hidden: dict[str, Tensor], lengths, tokens) -> tuple[Tensor, Tensor]:
    """The equations of kg.models.layers.aggregator, sequence by sequence and token by token."""
    texts, entities, t, e = [], [], 0, 0
    for n, places in zip(lengths, tokens, strict=True):
        x = attention(layer.attention, hidden["text"][t : t + n], 3)
        y = hidden["entity"][e : e + len(places)]
        if layer.entity_attention is not None:
            y = attention(layer.entity_attention, y, 2)
        network, inner = layer.feed_forward.network, []
        for row in range(n):
            total = network.inner(x[row]) + layer.entity_inner.bias
            for k, place in enumerate(places):
                if place == row:
                    total = total + layer.entity_inner.weight @ y[k]
            inner.append(F.gelu(total))
        texts += [layer.feed_forward.residual.norm(network.outer(h) + x[i]) for i, h in enumerate(inner)]
        entities += [layer.entity_residual.norm(layer.entity_outer(inner[p]) + y[k]) for k, p in enumerate(places)]
        t, e = t + n, e + len(places)
    return torch.stack(texts), torch.stack(entities)


@pytest.mark.parametrize("entity_attention", [True, False])
def test_equals_the_plain_loop(entity_attention: bool) -> None:
    lengths, tokens = [5, 3, 1, 6], [[0, 2], [], [0], [0, 1, 1, 5]]
    layer, hidden = aggregator(entity_attention=entity_attention), states(lengths, tokens)
    out = layer(hidden, context(lengths, tokens))
    text, entity = oracle(layer, hidden, lengths, tokens)
    torch.testing.assert_close(out["text"], text, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out["entity"], entity, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_packed_equals_alone_with_finite_gradients(norm_place: str) -> None:
    lengths, tokens = [4, 6], [[0, 3], [0]]
    layer, hidden = aggregator(norm_place=norm_place), states(lengths, tokens)
    hidden = {name: value.requires_grad_() for name, value in hidden.items()}
    together = layer(hidden, context(lengths, tokens))
    first = layer({"text": hidden["text"][:4], "entity": hidden["entity"][:2]}, context([4], [[0, 3]]))
    torch.testing.assert_close(together["text"][:4], first["text"])
    torch.testing.assert_close(together["entity"][:2], first["entity"])
    (together["text"].square().sum() + together["entity"].square().sum()).backward()
    for tensor in (*hidden.values(), *layer.parameters()):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()


def test_no_entity_rows_equal_no_entity_stream() -> None:
    layer, hidden = aggregator(), states([4, 2], [[], []])
    empty = layer(hidden, context([4, 2], [[], []]))
    assert empty["entity"].shape == (0, SIZES["entity"])
    without = layer({"text": hidden["text"]}, context([4, 2], [[], []]))
    torch.testing.assert_close(empty["text"], without["text"])
    assert set(without) == {"text"}
    other = {"image": torch.ones(2, 4)}
    assert layer(other, context([4, 2], [[], []])) is other


def test_last_layer_ends_the_entity_stream() -> None:
    full, last = aggregator(), aggregator(entity_output=False)
    last.load_state_dict(
        {n: t for n, t in full.state_dict().items() if not n.startswith(("entity_outer", "entity_re"))}
    )
    hidden = states([4], [[0, 2]])
    out = last(hidden, context([4], [[0, 2]]))
    assert set(out) == {"text"}
    torch.testing.assert_close(out["text"], full(hidden, context([4], [[0, 2]]))["text"])


def test_refuses_wrong_streams_and_activation() -> None:
    with pytest.raises(WorkbenchError, match="a list of exactly 2"):
        build(
            "layer",
            {"layer": "kg.aggregator", "streams": ["text"], "num_heads": [3]},
            sizes=SIZES,
        )
    with pytest.raises(WorkbenchError, match=r"activation.*swiglu"):
        build(
            "layer",
            {"layer": "kg.aggregator", "streams": ["text", "entity"], "num_heads": [3, 2], "activation": "swiglu"},
            sizes=SIZES,
        )
