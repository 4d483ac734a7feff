"""NEZHA's sinusoids of distances against their formula, written out as loops."""

from __future__ import annotations

import math

import torch

from tests.contracts.attention_inputs import HEADS, SIZE, rows
from tests.contracts.cases import ScoreBiasCase
from workbench.models.attention.call import attend, use_kernel
from workbench.models.layout import Layout
from workbench.models.score_biases.functional import FunctionalBias
from workbench.sequences.batch import Stream

CASE = ScoreBiasCase({"max_distance": 5}, {"flex": "what it adds depends on what the rows hold"})


def waves(distance: int) -> torch.Tensor:
    angles = [distance * 10000 ** (-2 * i / SIZE) for i in range(SIZE // 2)]
    return torch.tensor([wave(angle) for angle in angles for wave in (math.sin, math.cos)])


@torch.no_grad()
def test_attention_equals_the_formula() -> None:
    positions, offsets = torch.tensor([0, 1, 2, 7, 150]), torch.tensor([0, 5])
    text = Stream({"position_ids": positions}, offsets, [5])
    layout = Layout([5], offsets, {"rank": torch.zeros(5, dtype=torch.long)}, streams=(text,))
    q, k, v = (rows(5, seed) for seed in range(3))
    with use_kernel("dense"):
        _, weights = attend(q, k, v, layout, layout, score_bias=FunctionalBias(SIZE, 5), need_weights=True)
    assert weights is not None
    for head in range(HEADS):
        for i in range(5):
            cut = [min(max(int(positions[j] - positions[i]), -5), 5) for j in range(5)]
            scores = [float(q[i, head] @ (k[j, head] + waves(cut[j]))) / math.sqrt(SIZE) for j in range(5)]
            torch.testing.assert_close(weights[0][head, i], torch.tensor(scores).softmax(0), atol=1e-5, rtol=1e-5)
