"""The attention kernels. What differs between torch versions lives here."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from workbench.models.context import Layout
from workbench.models.dropout import dropout
from workbench.models.padding import Group, groups_of
from workbench.models.visibility import visible

if TYPE_CHECKING:
    from workbench.models.attention import Request

Result = tuple[Tensor, Tensor | None]


def dense(request: Request) -> Result:
    """One mask over all rows of the batch: the definition, for tests and for looking at weights."""
    queries, keys = request.queries, request.keys
    q, k, v = _contiguous(request)
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
    return _restored(out, queries), _restored_weights(weights, queries, keys) if request.need_weights else None


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the visible keys; a row that sees none is zero."""
    filled = scores.masked_fill(~mask, float("-inf"))
    highest = filled.amax(-1, keepdim=True) if filled.shape[-1] else filled.sum(-1, keepdim=True)
    exponents = torch.exp(filled - highest.clamp_min(torch.finfo(scores.dtype).min).detach())
    total = exponents.sum(-1, keepdim=True)
    return exponents / total.masked_fill(total == 0, 1.0)


def padded(request: Request) -> Result:
    """Sequences of similar length share a padded group; the grouping is made once per pair of layouts."""
    groups = groups_of(request.queries, request.keys)
    grids = zip(
        groups.groups,
        groups.queries.split(request.q),
        groups.keys.split(request.k),
        groups.keys.split(request.v),
        strict=True,
    )
    outs = []
    for group, q, k, v in grids:
        mask, blind = _group_mask(request, group)
        bias = mask if request.score is None else _score_bias(request, group, mask, q.dtype)
        out = _grid_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, request.dropout)
        if blind is not None:
            out = out.masked_fill(blind, 0.0)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    if not outs:
        return torch.zeros_like(request.q), None
    return groups.queries.join(torch.cat(outs)), None


def _grid_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float) -> Tensor:
    """Attention on one grid [batch, heads, length, size]; written out where torch has no fused kernel with dropout."""
    if p == 0.0 or q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + (_additive(bias, scores.dtype) if bias.dtype == torch.bool else bias)
    return dropout(torch.softmax(scores, -1), p, True) @ v


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the mask allows and -inf elsewhere: adding it to all heads' scores is several times faster than filling
    them, and has no work to do in the backward."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def _group_mask(request: Request, group: Group) -> tuple[Tensor | None, Tensor | None]:
    """The mask [batch, 1, q, k] of a group (None where all is visible) and the queries that see nothing."""
    if (kept := group.masks.get(request.window)) is not None:
        return kept
    mask = None if group.keys.full else group.keys.valid[:, None, :]
    q_integers = {n: group.queries.take(t) for n, t in request.queries.integers.items()}
    k_integers = {n: group.keys.take(t) for n, t in request.keys.integers.items()}
    seen = visible(q_integers, k_integers)
    if seen is not None:
        mask = seen if mask is None else mask & seen
    if request.window is not None:
        near = (group.queries.places[:, :, None] - group.keys.places[:, None, :]).abs() <= request.window
        mask = near if mask is None else mask & near
    blind = None
    if mask is not None:
        mask = mask.expand(-1, group.queries.width, -1).unsqueeze(1)
        sees = mask.any(-1, keepdim=True)
        if seen is not None or request.window is not None:
            blind = ~sees
            mask = mask | blind
    group.masks[request.window] = (mask, blind)
    return mask, blind


def _score_bias(request: Request, group: Group, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    assert request.score is not None
    term = request.score(group.queries.places, group.keys.places).to(dtype)
    return term if mask is None else term.masked_fill(~mask, float("-inf"))


def can_varlen(request: Request) -> bool:
    """Flash attention over offsets: CUDA, 16 bit, head size a multiple of 8, everything in a sequence visible."""
    return (
        request.q.is_cuda
        and request.q.dtype in (torch.float16, torch.bfloat16)
        and request.q.shape[-1] % 8 == 0
        and request.q.shape[-1] <= 256
        and request.all_visible
        and request.score is None
        and not request.need_weights
        and min(request.keys.lengths, default=0) > 0
    )


def varlen(request: Request) -> Result:
    """Flash attention with cumulative lengths; the operator behind torch's jagged tensors, since it has dropout."""
    queries, keys = request.queries, request.keys
    q, k, v = _contiguous(request)
    out = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        queries.offsets.int(),
        keys.offsets.int(),
        max(queries.lengths),
        max(keys.lengths),
        request.dropout,
        False,
        False,
        scale=1.0 / math.sqrt(q.shape[-1]),
    )[0]
    return _restored(out, queries), None


def can_flex(request: Request) -> bool:
    """Block-sparse compiled attention: CUDA, any visibility."""
    return (
        request.q.is_cuda
        and request.score is None
        and not request.need_weights
        and request.q.shape[-1] >= 16
        and request.queries.rows > 0
        and request.keys.rows > 0
    )


def flex(request: Request) -> Result:
    """flex_attention over all rows as one sequence, with the predicate as mask_mod.

    Dropout of the weights is exact: with the dropped keys masked the kernel gives o' and log-sum l'; with all keys
    it gives l; the dropped-out result is o' exp(l' - l) / (1 - p). Which weights drop is a hash of (seed, head, q, k).
    """
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in _contiguous(request))
    block_mask = _block_mask(request)
    if request.dropout == 0.0:
        out, log_sum = _flex_call(q, k, v, block_mask)
        out = out.masked_fill((log_sum == float("-inf")).unsqueeze(-1), 0.0)
    else:
        keep = 1.0 - request.dropout
        seed = torch.randint(2**31 - 1, (), device=q.device, dtype=torch.int32)
        kept, kept_sum = _flex_call(q, k, v, block_mask, _drop(seed, request.dropout))
        _, full_sum = _flex_call(q, k, v, block_mask)
        nothing = (kept_sum == float("-inf")) | (full_sum == float("-inf"))
        ratio = torch.exp((kept_sum - full_sum).masked_fill(nothing, float("-inf"))) / keep
        out = kept.masked_fill(nothing.unsqueeze(-1), 0.0) * ratio.unsqueeze(-1).to(kept.dtype)
    return _restored(out.squeeze(0).transpose(0, 1), request.queries), None


def _flex_call(q: Tensor, k: Tensor, v: Tensor, block_mask: Any, score_mod: Any = None) -> tuple[Tensor, Tensor]:
    """The result and the log-sum of the exponentiated scores."""
    function = _flex_function(q.is_cuda)
    out, extra = function(q, k, v, score_mod=score_mod, block_mask=block_mask, return_aux=AuxRequest(lse=True))
    return out, extra.lse


@lru_cache(maxsize=2)
def _flex_function(compiled: bool) -> Any:
    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def _block_mask(request: Request) -> Any:
    queries, keys = request.queries, request.keys
    found = queries.cache.get(("flex", id(keys), request.window))
    if found is None:
        found = create_block_mask(_mask_mod(request), None, None, queries.rows, keys.rows, device=request.q.device)
        queries.cache["flex", id(keys), request.window] = found
    return found


def _mask_mod(request: Request) -> Any:
    queries, keys = request.queries, request.keys
    q_sequence, k_sequence = queries.sequence_ids, keys.sequence_ids
    q_place, k_place = queries.index, keys.index
    q_integers, k_integers = queries.contiguous_integers, keys.contiguous_integers
    window = request.window

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        mask = q_sequence[q] == k_sequence[k]
        seen = _visible_pair(q_integers, k_integers, q, k)
        if seen is not None:
            mask = mask & seen
        if window is not None:
            mask = mask & ((q_place[q] - k_place[k]).abs() <= window)
        return mask

    return mask_mod


def _visible_pair(q_integers: dict[str, Tensor], k_integers: dict[str, Tensor], q: Tensor, k: Tensor) -> Tensor | None:
    """The predicate of `visibility.visible` for single rows: the same function, on 0-d integers."""
    seen = visible(
        {n: t[q].unsqueeze(-1) for n, t in q_integers.items()}, {n: t[k].unsqueeze(-1) for n, t in k_integers.items()}
    )
    return None if seen is None else seen.squeeze(-1).squeeze(-1)


def _drop(seed: Tensor, p: float) -> Any:
    threshold = int(p * 2**24)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        x = seed ^ (q.to(torch.int32) * 73856093) ^ (k.to(torch.int32) * 19349663) ^ (h.to(torch.int32) * 83492791)
        for _ in range(2):
            x = (x ^ (x >> 15)) * 0x2C1B3C6D
            x = (x ^ (x >> 12)) * 0x297A2D39
        return torch.where(((x ^ (x >> 15)) & 0xFFFFFF) < threshold, float("-inf"), score)

    return score_mod


def _contiguous(request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the rows of each sequence together."""
    q_order, k_order = request.queries.order, request.keys.order
    q = request.q if q_order is None else request.q[q_order]
    k = request.k if k_order is None else request.k[k_order]
    v = request.v if k_order is None else request.v[k_order]
    return q, k, v


def _restored(out: Tensor, layout: Layout) -> Tensor:
    """Rows back in the order in which they came."""
    return out if layout.order is None else out[torch.argsort(layout.order)]


def _restored_weights(weights: Tensor, queries: Layout, keys: Layout) -> Tensor:
    if queries.order is not None:
        weights = weights[:, torch.argsort(queries.order)]
    return weights if keys.order is None else weights[:, :, torch.argsort(keys.order)]
