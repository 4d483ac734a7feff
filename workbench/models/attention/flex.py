"""Compiled block-sparse attention with the predicate as mask_mod: CUDA, any visibility."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from workbench.models.attention.block_mask import block_mask
from workbench.models.attention.relation import ScoreMod
from workbench.models.attention.request import Request, Result, contiguous
from workbench.models.attention.visibility import visible


def flex_suits(request: Request) -> bool:
    """CUDA, heads of at least 16, some rows."""
    enough = request.q.shape[-1] >= 16 and request.queries.rows > 0 and request.keys.rows > 0
    return request.q.is_cuda and enough


def flex_lacks(request: Request) -> str | None:
    """Weights are never whole, and a relation must say its term for single scores."""
    if request.relation is not None and request.relation.score_mod is None:
        return f"the relation {type(request.relation).__name__}, which has no score_mod"
    return "weights to look at" if request.need_weights else None


def flex(request: Request) -> Result:
    """flex_attention over all rows as one sequence, with the predicate as mask_mod and the relation as score_mod.

    Dropout of the weights is exact: with the dropped keys masked the kernel gives o' and log-sum l'; with all keys
    it gives l; the dropped-out result is o' exp(l' - l) / (1 - p). Which weights drop is a hash of (seed, head, q, k).
    """
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in contiguous(request))
    blocks, relation = _blocks_of(request), request.relation
    modified = relation.score_mod(request.queries, request.keys) if relation and relation.score_mod else None
    if request.dropout == 0.0:
        out, log_sum = _flex_call(q, k, v, blocks, modified, request.scale)
        out = out.masked_fill((log_sum == float("-inf")).unsqueeze(-1), 0.0)
    else:
        keep = 1.0 - request.dropout
        seed = torch.randint(2**31 - 1, (), device=q.device, dtype=torch.int32)
        kept, kept_sum = _flex_call(q, k, v, blocks, _drop(seed, request.dropout, modified), request.scale)
        _, full_sum = _flex_call(q, k, v, blocks, modified, request.scale)
        nothing = (kept_sum == float("-inf")) | (full_sum == float("-inf"))
        ratio = torch.exp((kept_sum - full_sum).masked_fill(nothing, float("-inf"))) / keep
        out = kept.masked_fill(nothing.unsqueeze(-1), 0.0) * ratio.unsqueeze(-1).to(kept.dtype)
    return request.queries.restored(out.squeeze(0).transpose(0, 1)), None


def _flex_call(
    q: Tensor, k: Tensor, v: Tensor, blocks: Any, score_mod: ScoreMod | None, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result and the log-sum of the exponentiated scores."""
    function = _flex_function(q.is_cuda)
    out, extra = function(q, k, v, score_mod=score_mod, block_mask=blocks, scale=scale, return_aux=AuxRequest(lse=True))
    return out, extra.lse


@lru_cache(maxsize=2)
def _flex_function(compiled: bool) -> Any:
    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def _blocks_of(request: Request) -> Any:
    queries, keys = request.queries, request.keys

    return queries.kept(keys, ("flex", request.window), lambda: block_mask(request, _mask_mod(request)))


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


def _drop(seed: Tensor, p: float, modified: ScoreMod | None) -> ScoreMod:
    """The scores, as the relation has them, without those that drop."""
    threshold = int(p * 2**24)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        x = seed ^ (q.to(torch.int32) * 73856093) ^ (k.to(torch.int32) * 19349663) ^ (h.to(torch.int32) * 83492791)
        for _ in range(2):
            x = (x ^ (x >> 15)) * 0x2C1B3C6D
            x = (x ^ (x >> 12)) * 0x297A2D39
        kept = score if modified is None else modified(score, b, h, q, k)
        return torch.where(((x ^ (x >> 15)) & 0xFFFFFF) < threshold, float("-inf"), kept)

    return score_mod
