"""The reference: one mask over all rows of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.models.attention.request import Request, Result, contiguous, for_each_query, term
from workbench.models.attention.score_bias import QueryKeyGrid
from workbench.models.attention.visibility import near, visible
from workbench.models.dropout import dropout
from workbench.models.layout import Layout


def dense(request: Request) -> Result:
    """Attention with one mask over all rows of the batch: the definition, for tests and for attention weights."""
    queries, keys = request.queries, request.keys
    q, k, v = (for_each_query(rows, request.q.shape[1], 1) for rows in contiguous(request))
    mask = queries.sequence_ids[:, None] == keys.sequence_ids[None, :]
    seen = visible(queries.contiguous_integers, keys.contiguous_integers)
    mask = mask if seen is None else mask & seen
    if request.window is not None:
        sides = queries.contiguous_integers, keys.contiguous_integers
        mask = mask & near(*sides, queries.index, keys.index, request.window)
    scores = torch.einsum("qhd,khd->hqk", q, k).float() * request.factor
    if request.score_bias is not None:
        scores = scores + term(request.score_bias, _pair(request, q, k)).squeeze(0)
    weights = _softmax(scores, mask).to(v.dtype)
    out = torch.einsum("hqk,khd->qhd", dropout(weights, request.dropout, True, request.heads), v)
    return queries.restored(out), _by_sequence(weights, queries, keys) if request.need_weights else None


def _pair(request: Request, q: Tensor, k: Tensor) -> QueryKeyGrid:
    """All rows as one grid, with the rows of each sequence together."""
    queries, keys = request.queries, request.keys
    return QueryKeyGrid(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        queries,
        keys,
        queries.contiguous(torch.arange(queries.rows, device=queries.device))[None],
        keys.contiguous(torch.arange(keys.rows, device=keys.device))[None],
        queries.index[None],
        keys.index[None],
        request.factor,
    )


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the visible keys; a row that sees none is zero."""
    filled = scores.masked_fill(~mask, float("-inf"))
    highest = filled.amax(-1, keepdim=True) if filled.shape[-1] else filled.sum(-1, keepdim=True)
    exponents = torch.exp(filled - highest.clamp_min(torch.finfo(scores.dtype).min).detach())
    total = exponents.sum(-1, keepdim=True)
    return exponents / total.masked_fill(total == 0, 1.0)


def _by_sequence(weights: Tensor, queries: Layout, keys: Layout) -> list[Tensor]:
    """The weights of each sequence [heads, its queries, its keys]."""
    parts = weights.split(queries.lengths, 1)
    return [
        part[..., start : start + length] for part, start, length in zip(parts, keys.starts, keys.lengths, strict=True)
    ]
