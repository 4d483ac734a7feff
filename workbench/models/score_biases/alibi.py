"""ALiBi (Press et al., "Train Short, Test Long", ICLR 2022, arXiv:2108.12409): scores fall with the distance.

    score[h, q, k] -= m_h |position_q - position_k|,   m_h = 2^(-8 h / heads), h = 1 .. heads

For a number of heads that is no power of two the slopes are those of the next smaller one, then every second one of
the next greater one, as in the authors' published code (ofirpress/attention_with_linear_biases). The paper's models are
causal; in both directions the distance counts alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.core.options.bounds import Heads
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias, ScoreMod
from workbench.models.layout import Layout


class AlibiBias(ScoreBias):
    """ALiBi (Press et al., arXiv:2108.12409): a penalty on attention scores that grows linearly with the distance. Its
    slope is fixed per head; nothing is learned."""

    slopes: Tensor
    by_fields = True
    heads_in = {"slopes": 0}  # noqa: RUF012

    def __init__(self, num_heads: Heads) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes_of(num_heads)), persistent=False)

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        q, k = pair.positions
        distance = (q[:, :, None] - k[:, None, :]).abs()
        return -self.slopes[:, None, None] * distance[:, None]

    def score_mod(self, queries: Layout, keys: Layout) -> ScoreMod:
        slopes, q_at, k_at = self.slopes, queries.contiguous(queries.positions), keys.contiguous(keys.positions)

        def penalised(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score - slopes[h] * (q_at[q] - k_at[k]).abs()

        return penalised


def slopes_of(heads: int) -> list[float]:
    """The slope of each head."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]
