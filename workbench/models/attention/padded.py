"""Sequences grouped by length and padded inside the call: any request; the CPU's path."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.models.attention.padding import Group, groups_of
from workbench.models.attention.relation import Pair
from workbench.models.attention.request import Request, Result, term
from workbench.models.attention.visibility import near, visible
from workbench.models.dropout import dropout

WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""What a GPU may take: all but cuDNN, which plans every shape anew, and ragged batches have a new one each time."""


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
    outs, weights = [], _no_weights(request) if request.need_weights else None
    for group, q, k, v in grids:
        out, seen = group_attention(request, group, q, k, v)
        outs.append(out.flatten(0, 1))
        if weights is not None and seen is not None:
            for number, of_one in zip(group.members, seen, strict=True):
                weights[number] = of_one[:, : request.queries.lengths[number], : request.keys.lengths[number]]
    if not outs:
        return torch.zeros_like(request.q), weights
    return groups.queries.join(outs[0] if len(outs) == 1 else torch.cat(outs)), weights


def group_attention(request: Request, group: Group, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
    """Attention on the grids of a group, each [batch, length, heads, size] -> [batch, q, heads, size], weights.

    The weights [batch, heads, q, k] are those before dropout, None where the request needs none.
    """
    mask, blind = _group_mask(request, group)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    out, weights = _grid_attention(q, k, v, _bias(request, group, mask, q, k), request)
    if blind is not None:
        out = out.masked_fill(blind, 0.0)
        weights = None if weights is None else weights.masked_fill(blind, 0.0)
    return out.transpose(1, 2), weights


def _grid_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, request: Request
) -> tuple[Tensor, Tensor | None]:
    """Attention on one grid [batch, heads, length, size]; written out where torch has no fused kernel with dropout, and
    where its weights are looked at."""
    p = request.dropout
    if not request.need_weights and q.is_cuda:
        bias = None if bias is None else _whole(bias, k.shape[-2])
        with sdpa_kernel(WITHOUT_PLANS):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p, scale=request.scale), None
    if not request.need_weights and p == 0.0:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=request.scale), None
    scores = (q * request.factor) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores, -1)
    return dropout(weights, p, True) @ v, weights.to(v.dtype) if request.need_weights else None


def _no_weights(request: Request) -> list[Tensor]:
    """Those of sequences that see nothing [heads, q, k]."""
    sizes = zip(request.queries.lengths, request.keys.lengths, strict=True)
    return [request.q.new_zeros(request.q.shape[1], *size) for size in sizes]


def _whole(bias: Tensor, keys: int) -> Tensor:
    """A bias with a number for every key, these side by side: a GPU's kernels take no other."""
    return bias.expand(*bias.shape[:-1], keys).contiguous()


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the mask allows and -inf elsewhere: adding it to all heads' scores is several times faster than filling
    them, and has no work to do in the backward."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def _group_mask(request: Request, group: Group) -> tuple[Tensor | None, Tensor | None]:
    """The mask [batch, 1, q, k] of a group (None where all is visible) and the queries that see nothing."""
    if (kept := group.kept.get(("mask", request.window))) is not None:
        return kept
    mask = None if group.keys.full else group.keys.valid[:, None, :]
    q_integers = {n: group.queries.take(t) for n, t in request.queries.integers.items()}
    k_integers = {n: group.keys.take(t) for n, t in request.keys.integers.items()}
    seen = visible(q_integers, k_integers)
    if seen is not None:
        mask = seen if mask is None else mask & seen
    if request.window is not None:
        close = near(q_integers, k_integers, group.queries.places, group.keys.places, request.window)
        mask = close if mask is None else mask & close
    if group.queries.sequences is not None and group.keys.sequences is not None:
        same = group.queries.sequences[:, :, None] == group.keys.sequences[:, None, :]
        mask = same if mask is None else mask & same
    blind = None
    if mask is not None:
        mask = mask.expand(-1, group.queries.width, -1).unsqueeze(1)
        sees = mask.any(-1, keepdim=True)
        if seen is not None or request.window is not None:
            on_cpu = sees.device.type == "cpu"  # another device would be waited for
            blind = None if on_cpu and bool(sees.all()) else ~sees
            mask = mask if blind is None else mask | blind
    group.kept["mask", request.window] = (mask, blind)
    return mask, blind


def _bias(request: Request, group: Group, mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """What is added to a group's scores [batch or 1, 1 or heads, q, k]: the relation's term, -inf where the mask hides.
    It is kept for the other layers where it is the same there: without a relation, and of one that does not look at
    queries and keys as long as nothing learns (what is computed again in a backward has to be computed again)."""
    relation = request.relation
    if relation is None and mask is None:
        return None
    name = ("bias", request.window, relation, q.dtype)
    if (kept := group.kept.get(name)) is not None:
        return kept
    bias = None if mask is None else _additive(mask, q.dtype)
    if relation is not None:
        queries, keys = group.queries, group.keys
        grids = queries.index, keys.index, queries.places, keys.places
        pair = Pair(q, k, request.queries, request.keys, *grids, request.factor, _hidden(group, mask))
        added = term(relation, pair).to(q.dtype)
        bias = added if bias is None else added + bias
    if relation is None or (relation.by_fields and not torch.is_grad_enabled()):
        group.kept[name] = bias
    return bias


def _hidden(group: Group, mask: Tensor | None) -> Tensor | None:
    """The pairs of a grid that don't see each other, where it has rows of several sequences."""
    return None if mask is None or group.queries.sequences is None else ~mask.squeeze(1)
