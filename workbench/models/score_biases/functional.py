"""Functional relative positions (NEZHA, Wei et al., arXiv:1909.00204, section 2.2): sinusoids of the distance.

    score[h, q, k] = Q_q . (K_k + a_d) / sqrt(size),   d = position_k - position_q, cut at max_distance
    a_d = [sin(d f_0), cos(d f_0), sin(d f_1), ...],   f_i = 10000^(-2 i / size)

The product of query and key is attention's own; Q_q . a_d is added here. Nothing is learned, and all heads and layers
have the same a_d. The paper also adds a_d to the values. That is no term of a score, so that it is left out here.
"""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from workbench.core.options.bounds import Size
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias

BASE = 10000.0


class FunctionalBias(ScoreBias):
    """Functional relative positions of NEZHA (Wei et al., arXiv:1909.00204, section 2.2): the query attends to
    sinusoids of the distance, which are not learned. Values are as they are.

    Args:
        max_distance: the distance from which on all are alike.
    """

    table: Tensor
    heads_in = {}  # noqa: RUF012

    def __init__(self, head_size: Size, max_distance: Annotated[int, Ge(1), Le(2**16)] = 64) -> None:
        super().__init__()
        self.max_distance = max_distance
        rates = BASE ** -(torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angles = torch.arange(-max_distance, max_distance + 1, dtype=torch.float32)[:, None] * rates
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :head_size]
        self.register_buffer("table", waves, persistent=False)

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        q_at, k_at = pair.positions
        distance = (k_at[:, None, :] - q_at[:, :, None]).clamp(-self.max_distance, self.max_distance)
        of_all = pair.q @ self.table.T.to(pair.q.dtype)
        index = (distance + self.max_distance)[:, None]
        return pair.factor * of_all.gather(-1, index.expand(*of_all.shape[:3], -1))
