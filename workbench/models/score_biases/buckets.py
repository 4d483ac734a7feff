"""T5's relative positions (Raffel et al., JMLR 2020, arXiv:1910.10683, section 2.1): a number per head and bucket.

    score[h, q, k] += table[bucket(position_k - position_q), h]

Near distances have a bucket each, farther ones share buckets of logarithmic width up to `max_distance`, and all beyond
share the last. An encoder has half of the buckets for each direction, a decoder all of them for the keys before it. In
T5 the layers of a stack share one table (`share: score_bias`) and scores are not scaled (`scale: 1`).
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias, ScoreMod
from workbench.models.layout import Layout

Farthest = Annotated[int, Ge(1), Le(2**16)]


class BucketsBias(ScoreBias):
    """Relative position bias of T5 (Raffel et al., arXiv:1910.10683, section 2.1): a learned number per head and bucket
    of distances.

    Args:
        num_buckets: of both directions together.
        max_distance: the distance from which on all share a bucket.
        bidirectional: whether keys after the query have buckets of their own (encoders), or all the one of distance 0.

    Raises:
        WorkbenchError: too few buckets for the directions, or more than distances.
    """

    bucket: Tensor
    edge: Tensor
    by_fields = True
    heads_in = {"table.weight": 1}  # noqa: RUF012

    def __init__(
        self,
        num_heads: Heads,
        num_buckets: Annotated[int, Ge(2), Le(2**16)] = 32,
        max_distance: Farthest = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        near = num_buckets // (4 if bidirectional else 2)
        if near < 1 or max_distance <= near:
            raise WorkbenchError(
                f"num_buckets = {num_buckets} with max_distance = {max_distance}; allowed: at least "
                f"{4 if bidirectional else 2} buckets, and a max_distance above {max(near, 1)}"
            )
        self.table = nn.Embedding(num_buckets, num_heads)
        self.register_buffer("edge", torch.tensor(max_distance), persistent=False)  # in compiled code not a constant
        distances = torch.arange(-max_distance, max_distance + 1)
        self.register_buffer(
            "bucket", buckets_of(distances, num_buckets, max_distance, bidirectional), persistent=False
        )

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        q, k = pair.positions
        distance = (k[:, None, :] - q[:, :, None]).clamp(-self.max_distance, self.max_distance)
        return nn.functional.embedding(distance + self.max_distance, self._by_distance()).movedim(-1, 1)

    def score_mod(self, queries: Layout, keys: Layout) -> ScoreMod:
        table, edge = self._by_distance(), self.edge
        q_at, k_at = queries.contiguous(queries.positions), keys.contiguous(keys.positions)

        def biased(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            distance = torch.minimum(torch.maximum(k_at[k] - q_at[q], -edge), edge)
            return score + table[distance + edge, h]

        return biased

    def _by_distance(self) -> Tensor:
        """The bias for the distances -max_distance .. max_distance [2 * max_distance + 1, heads]."""
        biases: Tensor = self.table(self.bucket)
        return biases


def buckets_of(distance: Tensor, num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The bucket of each distance (position of the key minus that of the query)."""
    if bidirectional:
        half = num_buckets // 2
        return half * (distance > 0) + _one_way(distance.abs(), half, max_distance)
    return _one_way((-distance).clamp_min(0), num_buckets, max_distance)


def _one_way(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    near = num_buckets // 2
    growth = torch.log(distance.clamp_min(1) / near) / math.log(max_distance / near)
    far = (near + growth * (num_buckets - near)).long().clamp_max(num_buckets - 1)
    return torch.where(distance < near, distance, far)
