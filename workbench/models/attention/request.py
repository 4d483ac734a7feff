"""The request and the result of an attention kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from workbench.components.calls import call
from workbench.models.attention.key_values import KeyValues
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias
from workbench.models.layer_checks import TERM
from workbench.models.layout import Layout
from workbench.models.tensor_cut import HeadRange

Result = tuple[Tensor, list[Tensor] | None]
"""Rows [rows_q, heads, size], and the weights of each sequence [heads, its queries, its keys] where they are needed."""


@dataclass
class Request:
    """One call: q [rows_q, heads, size], k and v [rows_k, heads, size], in the layouts' row order. Keys and values may
    have fewer heads, each of which as many queries in a row read (Ainslie et al., arXiv:2305.13245).

    `window`: a key further than this many places from its query is not seen, if neither is everywhere. `score_bias`: a
    term that is added to the scaled scores. `scale`: factor of the scores, by default 1 / sqrt(size). `need_weights`:
    return the weights of each sequence too. `label`: the name of the layer and streams, for messages. `heads`: those of
    this rank, where other ranks compute the others.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    queries: Layout
    keys: Layout
    dropout: float = 0.0
    window: int | None = None
    score_bias: ScoreBias | None = None
    scale: float | None = None
    need_weights: bool = False
    label: str = ""
    heads: HeadRange | None = None

    @property
    def factor(self) -> float:
        """The factor of the products of queries and keys."""
        return 1.0 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale

    @property
    def grouped(self) -> bool:
        """Whether several heads of queries read one of the keys."""
        return self.q.shape[1] != self.k.shape[1]


def for_each_query(heads: Tensor, count: int, dim: int) -> Tensor:
    """Keys or values with one head for each of so many heads of queries."""
    times = count // heads.shape[dim]
    return heads if times == 1 else heads.repeat_interleave(times, dim)


def term(score_bias: ScoreBias, pair: QueryKeyGrid) -> Tensor:
    """The term that a score bias adds to the scores of a grid [batch or 1, heads, q, k]."""
    added: Tensor = call(score_bias, "", TERM, pair)
    return added


def together(request: Request) -> Request:
    """The same with the keys of all sequences one after another, where they are stored apart."""
    keys = KeyValues(request.k, request.v, request.keys).together()
    return replace(request, k=keys.keys, v=keys.values, keys=keys.layout)


def contiguous(request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the rows of each sequence together."""
    return request.queries.contiguous(request.q), request.keys.contiguous(request.k), request.keys.contiguous(request.v)
