"""What is asked of attention, and what a kernel answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from workbench.models.attention.relation import Pair, Relation
from workbench.models.attention.seen import Keys
from workbench.models.layout import Layout
from workbench.models.returns import TERM
from workbench.parts.calls import call

Result = tuple[Tensor, list[Tensor] | None]
"""Rows [rows_q, heads, size], and the weights of each sequence [heads, its queries, its keys] where they are needed."""


@dataclass
class Request:
    """One call: q [rows_q, heads, size], k and v [rows_k, heads, size], in the layouts' row order.

    `window`: a key further than this many places from its query is not seen, if neither is everywhere. `relation`: a
    term that is added to the scaled scores. `scale`: factor of the scores, by default 1 / sqrt(size). `need_weights`:
    those of each sequence are needed too. `label`: whose attention it is, for people.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    queries: Layout
    keys: Layout
    dropout: float = 0.0
    window: int | None = None
    relation: Relation | None = None
    scale: float | None = None
    need_weights: bool = False
    label: str = ""

    @property
    def factor(self) -> float:
        """What the products of queries and keys are multiplied by."""
        return 1.0 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale


def term(relation: Relation, pair: Pair) -> Tensor:
    """What a relation adds to the scores of a grid [batch or 1, heads, q, k]."""
    added: Tensor = call(relation, "", TERM, pair)
    return added


def together(request: Request) -> Request:
    """The same with the keys of all sequences one after another, where they stand apart."""
    keys = Keys(request.k, request.v, request.keys).together()
    return replace(request, k=keys.keys, v=keys.values, keys=keys.layout)


def contiguous(request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the rows of each sequence together."""
    return request.queries.contiguous(request.q), request.keys.contiguous(request.k), request.keys.contiguous(request.v)
