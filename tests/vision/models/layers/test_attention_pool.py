"""The layer `vision.attention_pool`, in a loop over sequences, heads and queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.contracts.cases import LayerCase
from vision.models.layers.attention_pool import AttentionPoolLayer
from workbench.models.context import Context
from workbench.sequences.batch import Batch, Stream

CASE = LayerCase({"stream": "text", "to": "image", "num_heads": 2})
HEADS, SIZE, KEY_SIZE = 2, 8, 6


def streams(**lengths: list[int]) -> Batch:
    def stream(counts: list[int]) -> Stream:
        offsets = torch.tensor([0, *np.cumsum(counts).tolist()])
        return Stream({"position_ids": torch.zeros(int(offsets[-1]), dtype=torch.long)}, offsets, counts)

    return Batch({name: stream(counts) for name, counts in lengths.items()})


@torch.no_grad()
def test_every_query_is_a_mean_of_what_it_reads() -> None:
    torch.manual_seed(0)
    layer = AttentionPoolLayer("query", "image", {"query": SIZE, "image": KEY_SIZE}, HEADS).eval()
    batch = streams(query=[3, 3], image=[4, 1])
    hidden = {"query": torch.randn(6, SIZE), "image": torch.randn(5, KEY_SIZE), "text": torch.randn(2, 4)}
    found = layer(hidden, Context(batch))
    w: dict[str, Any] = {name: value.double().numpy() for name, value in layer.attention.state_dict().items()}
    q_rows, k_rows = hidden["query"].double().numpy(), hidden["image"].double().numpy()
    head = SIZE // HEADS
    for row in range(6):
        keys = k_rows[:4] if row < 3 else k_rows[4:]
        pooled = []
        for h in range(HEADS):
            at = slice(h * head, (h + 1) * head)
            q = (w["query.weight"] @ q_rows[row] + w["query.bias"])[at]
            k = (keys @ w["key_value.weight"].T + w["key_value.bias"])[:, :SIZE][:, at]
            v = (keys @ w["key_value.weight"].T + w["key_value.bias"])[:, SIZE:][:, at]
            weights = np.exp(k @ q / np.sqrt(head))
            pooled.append((weights / weights.sum()) @ v)
        wanted = w["output.weight"] @ np.concatenate(pooled) + w["output.bias"]
        np.testing.assert_allclose(found["query"][row].numpy(), wanted, atol=1e-5)
    assert found["image"] is hidden["image"]
    assert found["text"] is hidden["text"]


def test_without_an_image_nothing_is_read() -> None:
    layer = AttentionPoolLayer("query", "image", {"query": SIZE, "image": KEY_SIZE}, HEADS)
    hidden = {"text": torch.ones(2, 4)}
    assert layer(hidden, Context(streams(text=[2]))) is hidden


@torch.no_grad()
def test_a_feed_forward_network_may_follow() -> None:
    torch.manual_seed(0)
    options = {"feed_forward": True, "intermediate_size": 12, "activation": "gelu_tanh"}
    layer = AttentionPoolLayer("query", "image", {"query": SIZE, "image": KEY_SIZE}, HEADS, **options).eval()
    hidden, context = (
        {"query": torch.randn(2, SIZE), "image": torch.randn(5, KEY_SIZE)},
        Context(streams(query=[1, 1], image=[4, 1])),
    )
    found = layer(hidden, context)["query"]
    block, layer.feed_forward = layer.feed_forward, None
    pooled = layer(hidden, context)["query"]
    inner = torch.nn.functional.layer_norm(pooled, (SIZE,), *block.residual.norm.parameters(), eps=1e-6)
    inner = torch.nn.functional.gelu(block.network.inner(inner), approximate="tanh")
    torch.testing.assert_close(found, pooled + block.network.outer(inner))
