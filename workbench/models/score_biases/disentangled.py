"""Disentangled attention (DeBERTa, He et al., ICLR 2021, arXiv:2006.03654, section 3.1, equation 4).

    score[h, q, k] = (Q_q . K_k + Q_q . K^r_d + K_k . Q^r_d) / sqrt(3 size),   d = bucket(position_q - position_k)

The product of query and key is attention's own; the other two are added here. K^r and Q^r are the rows of a table of
relative positions, through matrices of their own (`own_maps`, the paper), or through those of the layer's keys and
queries (versions 2 and 3, arXiv:2111.09543). In the paper the layers of a stack share the table (`share: positions`).

With `num_buckets`, distances up to a quarter of them have a row each; farther ones share rows of logarithmic width up
to `max_distance`, as in the released code (microsoft/DeBERTa). The terms depend on the states of the rows, so flex
attention, which modifies single scores, has no form of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, cast

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Dropout, Epsilon, Heads, Size
from workbench.models.attention.score_bias import Attention, QueryKeyGrid, ScoreBias
from workbench.models.dropout import dropout
from workbench.models.tensor_cut import TensorCuts

Farthest = Annotated[int, Ge(2), Le(2**16)]
Buckets = Annotated[int, Ge(4), Le(2**16)]


class RelativePositions(nn.Module):
    """The rows of relative positions [rows, width], which a norm may follow."""

    def __init__(self, rows: int, width: int, norm_eps: float | None) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(width, eps=norm_eps)

    def forward(self) -> Tensor:
        rows: Tensor = self.norm(self.table.weight)
        return rows


class DisentangledBias(ScoreBias):
    """Disentangled attention of DeBERTa (He et al., arXiv:2006.03654, equation 4). The query attends to the relative
    position of the key, and the key to that of the query; scores are scaled by 1 / sqrt(size x number of products).

    Args:
        max_distance: the distance from which on all share a row.
        num_buckets: the rows of each direction, half of them for single distances; null: a row for each distance.
        terms: both terms, or content to position (c2p) or position to content (p2c) alone.
        own_maps: whether positions have matrices of their own (the paper), or go through the layer's (v2, v3).
        norm_eps: that of a norm of the table (v2, v3); null for no norm.
        dropout: of the table.

    Raises:
        WorkbenchError: more buckets than distances.
    """

    index: Tensor

    def __init__(
        self,
        num_heads: Heads,
        head_size: Size,
        max_distance: Farthest = 512,
        num_buckets: Buckets | None = None,
        terms: Literal["both", "c2p", "p2c"] = "both",
        own_maps: bool = False,
        norm_eps: Epsilon | None = None,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        if num_buckets is not None and num_buckets >= max_distance:
            raise WorkbenchError(
                f"num_buckets = {num_buckets} with max_distance = {max_distance}; allowed: fewer than max_distance, or "
                "null for a row for each distance"
            )
        width, span = num_heads * head_size, num_buckets or max_distance
        self.head_size, self.max_distance, self.dropout = head_size, max_distance, dropout
        self.terms = ("c2p", "p2c") if terms == "both" else (terms,)
        self.scale = (head_size * (1 + len(self.terms))) ** -0.5
        self.positions = RelativePositions(2 * span, width, norm_eps)
        self.own_maps = own_maps
        self.key = nn.Linear(width, width, bias=False) if own_maps and "c2p" in self.terms else None
        self.query = nn.Linear(width, width) if own_maps and "p2c" in self.terms else None
        distances = torch.arange(-max_distance, max_distance + 1)
        buckets = distances if num_buckets is None else log_buckets(distances, num_buckets, max_distance)
        self.register_buffer("index", (buckets + span).clamp(0, 2 * span - 1), persistent=False)

    def tensor_cuts(self) -> TensorCuts:
        maps = {"key": self.key, "query": self.query}
        return TensorCuts(columns={name: 1 for name, part in maps.items() if part is not None}, complete=False)

    def check_attention(self, attention: Attention) -> None:
        """Check that positions can go through the layer's matrices.

        Raises:
            WorkbenchError: its queries and keys are of two streams, of another width, or with fewer heads of keys; or
                they are normed or turned, which positions are not.
        """
        normed = not isinstance(getattr(attention, "query_norm", nn.Identity()), nn.Identity)
        if normed or getattr(attention, "rotary", None) is not None:
            raise WorkbenchError(
                "the score bias disentangled multiplies queries and keys with positions that are neither normed nor "
                "turned: leave out qk_norm and rotary"
            )
        width, maps = self.positions.table.embedding_dim, getattr(attention, "qkv", None)
        if not self.own_maps and (maps is None or (maps.in_features, maps.out_features) != (width, 3 * width)):
            raise WorkbenchError(
                f"the score bias disentangled has positions {width} wide, which go through the layer's matrices of "
                "queries and keys: use it in a layer on one stream without inner_size and kv_heads, or set own_maps: "
                "true"
            )

    def bound(self, attention: Attention, rows: Tensor) -> ScoreBias:
        """With the rows of positions as queries and keys of the layer."""
        if self.own_maps:
            return self
        queries, keys, _ = attention.projected(attention.entered(self._rows()))
        return cast(ScoreBias, BoundBias(self, queries, keys))

    def forward(self, pair: QueryKeyGrid, queries: Tensor | None = None, keys: Tensor | None = None) -> Tensor:
        """The terms; `queries` and `keys` are those of the positions [rows, heads, size], by default by its own
        matrices."""
        if self.own_maps:
            rows = self.entered(self._rows())
            shape = (-1, self.head_size)
            keys = None if self.key is None else self.key(rows).unflatten(-1, shape)
            queries = None if self.query is None else self.query(rows).unflatten(-1, shape)
        q_at, k_at = pair.positions
        distance = (q_at[:, :, None] - k_at[:, None, :]).clamp(-self.max_distance, self.max_distance)
        index = self.index[distance + self.max_distance][:, None]
        added = []
        if "c2p" in self.terms and keys is not None:
            added.append(_taken(pair.q, keys, index))
        if "p2c" in self.terms and queries is not None:
            added.append(_taken(pair.k, queries, index.transpose(-1, -2)).transpose(-1, -2))
        return pair.factor * sum(added[1:], added[0])

    def _rows(self) -> Tensor:
        return dropout(self.positions(), self.dropout, self.training)


@dataclass(frozen=True, eq=False)
class BoundBias:
    """The score bias of a layer through whose matrices the positions go, for one call of attention."""

    score_bias: DisentangledBias
    queries: Tensor
    keys: Tensor
    score_mod: ClassVar[None] = None
    by_fields: ClassVar[bool] = False

    def __call__(self, pair: QueryKeyGrid) -> Tensor:
        added: Tensor = self.score_bias(pair, self.queries, self.keys)
        return added


def _taken(states: Tensor, positions: Tensor, index: Tensor) -> Tensor:
    """The products of states [batch, heads, rows, size] with those of the positions [all, heads, size] that the index
    [batch or 1, 1, rows, others] names."""
    of_all = states @ positions.permute(1, 2, 0).to(states.dtype)
    return of_all.gather(-1, index.expand(*of_all.shape[:3], -1))


def log_buckets(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance, with its sign. The arithmetic is that of the released code, in float32, on which the
    borders of the buckets depend."""
    half = num_buckets // 2
    far = distance.abs().clamp_min(half)
    growth = torch.log(far / half) / torch.log(torch.tensor((max_distance - 1) / half)) * (half - 1)
    return torch.where(distance.abs() <= half, distance, ((growth.ceil() + half) * distance.sign()).long())
