"""ProphetNet's relative positions (Qi et al., EMNLP Findings 2020, arXiv:2001.04063): T5's buckets, where the number of
a head and bucket is a linear map of the querying row.

    score[h, q, k] += (W x_q + b)[bucket(position_k - position_q), h]

x is the input of attention, and not its query. The paper does not write it down; this is the released code's form. Keys
behind their query share the bucket of distance 0, as in a decoder. The term depends on the states of the rows, so flex
attention, which modifies single scores, has no form of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Size
from workbench.models.attention.score_bias import Attention, QueryKeyGrid, ScoreBias
from workbench.models.score_biases.buckets import Farthest, buckets_of
from workbench.models.tensor_cut import TensorCuts


class ProjectedBucketsBias(ScoreBias):
    """Relative position bias of ProphetNet (arXiv:2001.04063): the number of each head and bucket of distances is a
    linear map of the querying row.

    Args:
        num_buckets: of the keys before a row, half of them for single distances.
        max_distance: the distance from which on all share a bucket.

    Raises:
        WorkbenchError: more buckets than distances; in a forward: an attention of another width than its rows.
    """

    bucket: Tensor

    def __init__(
        self,
        num_heads: Heads,
        head_size: Size,
        num_buckets: Annotated[int, Ge(2), Le(2**16)] = 32,
        max_distance: Farthest = 128,
    ) -> None:
        super().__init__()
        if max_distance <= num_buckets // 2:
            raise WorkbenchError(
                f"num_buckets = {num_buckets} with max_distance = {max_distance}; allowed: a max_distance above "
                f"{num_buckets // 2}"
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.project = nn.Linear(num_heads * head_size, num_buckets * num_heads)
        distances = torch.arange(-max_distance, max_distance + 1)
        self.register_buffer("bucket", buckets_of(distances, num_buckets, max_distance, False), persistent=False)

    def tensor_cuts(self) -> TensorCuts:
        return TensorCuts(columns={"project": self.num_buckets})

    def bound(self, attention: Attention, rows: Tensor) -> ScoreBias:
        """With the numbers of the rows that query."""
        if rows.shape[-1] != self.project.in_features:
            raise WorkbenchError(
                f"the score bias projected_buckets reads rows {self.project.in_features} wide, as wide as the "
                f"attention, and these are {rows.shape[-1]} wide; remove inner_size from the layer"
            )
        numbers = self.project(rows).unflatten(-1, (self.num_buckets, -1))
        return cast(ScoreBias, BoundBuckets(self, numbers))

    def forward(self, pair: QueryKeyGrid, numbers: Tensor | None = None) -> Tensor:
        """The term; `numbers` [rows, buckets, heads] are those of the rows, which `bound` reads."""
        assert numbers is not None
        q_at, k_at = pair.positions
        distance = (k_at[:, None, :] - q_at[:, :, None]).clamp(-self.max_distance, self.max_distance)
        index = self.bucket[distance + self.max_distance][:, None]
        of_all = numbers[pair.q_rows].movedim(-1, 1)
        return of_all.gather(-1, index.expand(*of_all.shape[:3], -1))


@dataclass(frozen=True, eq=False)
class BoundBuckets:
    """The score bias with the numbers of the rows of one call of attention."""

    score_bias: ProjectedBucketsBias
    numbers: Tensor
    score_mod: ClassVar[None] = None
    by_fields: ClassVar[bool] = False

    def __call__(self, pair: QueryKeyGrid) -> Tensor:
        added: Tensor = self.score_bias(pair, self.numbers)
        return added
