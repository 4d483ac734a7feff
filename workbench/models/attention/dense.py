"""The reference: one mask over all rows of the batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from workbench.models.attention.request import Request, Result, contiguous, restored
from workbench.models.attention.visibility import visible
from workbench.models.context import Layout
from workbench.models.dropout import dropout


def dense(request: Request) -> Result:
    """One mask over all rows of the batch: the definition, for tests and for looking at weights."""
    queries, keys = request.queries, request.keys
    q, k, v = contiguous(request)
    mask = queries.sequence_ids[:, None] == keys.sequence_ids[None, :]
    seen = visible(queries.contiguous_integers, keys.contiguous_integers)
    mask = mask if seen is None else mask & seen
    if request.window is not None:
        mask = mask & ((queries.index[:, None] - keys.index[None, :]).abs() <= request.window)
    scores = torch.einsum("qhd,khd->hqk", q, k).float() / math.sqrt(q.shape[-1])
    if request.score is not None:
        scores = scores + request.score(queries.index, keys.index)
    weights = _softmax(scores, mask).to(v.dtype)
    out = torch.einsum("hqk,khd->qhd", dropout(weights, request.dropout, True), v)
    return restored(out, queries), _restored_weights(weights, queries, keys) if request.need_weights else None


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the visible keys; a row that sees none is zero."""
    filled = scores.masked_fill(~mask, float("-inf"))
    highest = filled.amax(-1, keepdim=True) if filled.shape[-1] else filled.sum(-1, keepdim=True)
    exponents = torch.exp(filled - highest.clamp_min(torch.finfo(scores.dtype).min).detach())
    total = exponents.sum(-1, keepdim=True)
    return exponents / total.masked_fill(total == 0, 1.0)


def _restored_weights(weights: Tensor, queries: Layout, keys: Layout) -> Tensor:
    if queries.order is not None:
        weights = weights[:, torch.argsort(queries.order)]
    return weights if keys.order is None else weights[:, :, torch.argsort(keys.order)]
