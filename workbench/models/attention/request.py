"""What is asked of attention, and what a kernel answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.models.context import Layout

Score = Callable[[Tensor, Tensor], Tensor]
Result = tuple[Tensor, Tensor | None]


@dataclass
class Request:
    """One call: q [rows_q, heads, size], k and v [rows_k, heads, size], in the layouts' row order.

    `window`: a key further than this many places from its query is not seen. `score(q_index, k_index)` -> a term
    [..., heads, q, k] added to the scaled scores, from the places [..., q], [..., k] of rows in their sequences.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    queries: Layout
    keys: Layout
    dropout: float = 0.0
    window: int | None = None
    score: Score | None = None
    need_weights: bool = False

    @property
    def all_visible(self) -> bool:
        return not self.queries.integers and not self.keys.integers and self.window is None


def contiguous(request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the rows of each sequence together."""
    q_order, k_order = request.queries.order, request.keys.order
    q = request.q if q_order is None else request.q[q_order]
    k = request.k if k_order is None else request.k[k_order]
    v = request.v if k_order is None else request.v[k_order]
    return q, k, v


def restored(out: Tensor, layout: Layout) -> Tensor:
    """Rows back in the order in which they came."""
    return out if layout.order is None else out[torch.argsort(layout.order)]
