"""Disentangled attention against its equation, written out as loops; the buckets of its distances."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.contracts.attention_inputs import HEADS, SIZE, rows
from tests.contracts.cases import ScoreBiasCase
from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import attend, use_kernel
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.layout import Layout
from workbench.models.network import Network
from workbench.models.score_biases.disentangled import DisentangledBias, log_buckets
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Stream

CONTENT = "what it adds depends on what the rows hold, and flex sees single scores"
OWN = {"max_distance": 8, "own_maps": True}
CASES = {
    "": ScoreBiasCase({**OWN, "norm_eps": 1e-7}, {"flex": CONTENT}),
    "buckets": ScoreBiasCase({**OWN, "num_buckets": 6}, {"flex": CONTENT}),
    "one term": ScoreBiasCase({**OWN, "terms": "p2c"}, {"flex": CONTENT}),
}


@torch.no_grad()
def test_attention_equals_the_equation() -> None:
    """(Q K + Q K^r_d + K Q^r_d) / sqrt(3 size), where d is cut at the farthest distance."""
    torch.manual_seed(0)
    bias = DisentangledBias(HEADS, SIZE, max_distance=4, own_maps=True)
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    positions, offsets = torch.tensor([0, 1, 2, 3, 7, 150]), torch.tensor([0, 6])
    layout = Layout(
        [6], offsets, {"rank": torch.arange(6)}, streams=(Stream({"position_ids": positions}, offsets, [6]),)
    )
    q, k, v = (rows(6, seed) for seed in range(3))
    with use_kernel("dense"):
        _, weights = attend(q, k, v, layout, layout, score_bias=bias, scale=bias.scale, need_weights=True)
    assert weights is not None
    table = bias.positions.table.weight
    assert bias.key is not None
    assert bias.query is not None
    key, query = bias.key(table).view(8, HEADS, SIZE), bias.query(table).view(8, HEADS, SIZE)
    for head in range(HEADS):
        for i in range(6):
            scores = []
            for j in range(i + 1):
                row = min(max(int(positions[i] - positions[j]), -4), 3) + 4
                total = q[i, head] @ k[j, head] + q[i, head] @ key[row, head] + k[j, head] @ query[row, head]
                scores.append(float(total) / math.sqrt(3 * SIZE))
            wanted = torch.tensor(scores).softmax(0)
            torch.testing.assert_close(weights[0][head, i, : i + 1], wanted, atol=1e-5, rtol=1e-5)


def test_near_distances_have_a_row_each_and_far_ones_share() -> None:
    """The borders, counted by hand for 8 buckets up to 32: |d| = 4 e^(g log(31 / 4) / 3) for g = 0 .. 3."""
    found = log_buckets(torch.tensor([0, 1, 4, 5, 7, 8, 15, 16, 31, 32, -4, -5, -31]), 8, 32).tolist()
    assert found == [0, 1, 4, 5, 5, 6, 6, 7, 7, 8, -4, -5, -7]


def stack(share: str | None, **options: object) -> Network:
    bias = {"score_bias": "disentangled", "max_distance": 8, **options}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "score_bias": bias, "repeat": 2}
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 9}
    return Network(NetworkSpec({"text": text}, [layer if share is None else {**layer, "share": share}]))


def test_layers_share_the_table_and_keep_their_own_maps() -> None:
    network = stack("positions", own_maps=True)
    first, second = (layer.attention.attention.score_bias for layer in network.layers)
    assert first.positions is second.positions
    assert first.key is not second.key
    apart = stack(None)
    assert len({id(layer.attention.attention.score_bias.positions) for layer in apart.layers}) == 2


def test_a_layer_whose_matrices_do_not_fit_is_refused() -> None:
    options = LayerOptions(2, inner_size=16, score_bias="disentangled")
    with pytest.raises(WorkbenchError, match="set own_maps: true"):
        MultiHeadAttention(8, options)
    with pytest.raises(WorkbenchError, match="set own_maps: true"):
        MultiHeadAttention(16, options, key_size=16)
    with pytest.raises(WorkbenchError, match="fewer than max_distance"):
        DisentangledBias(HEADS, SIZE, max_distance=8, num_buckets=8)


@pytest.mark.parametrize("options", [{"qk_norm": True}, {"rotary": 100.0}])
@pytest.mark.parametrize("own_maps", [True, False])
def test_queries_and_keys_that_positions_do_not_follow_are_refused(options: dict[str, Any], own_maps: bool) -> None:
    bias = {"score_bias": "disentangled", "own_maps": own_maps}
    with pytest.raises(WorkbenchError, match="leave out qk_norm and rotary"):
        MultiHeadAttention(16, LayerOptions(2, score_bias=bias, **options))
