"""Compiled block-sparse attention with the predicate as mask_mod: CUDA, any visibility.

The first call of each kind (a layer's heads, integers, score bias, dropout) is compiled, which takes about a minute and
is logged before it begins. All sizes are dynamic, so that ragged batches compile nothing new.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from workbench.models.attention.block_mask import block_mask
from workbench.models.attention.request import Request, Result, contiguous
from workbench.models.attention.score_bias import ScoreMod
from workbench.models.attention.visibility import near, visible
from workbench.models.layout import CacheLayout

log = logging.getLogger(__name__)

KINDS = 64
"""The most kinds of layers and batches that are compiled in one process. More are an error, as the uncompiled kernel
would compute all scores of all rows."""
SMALL = 1 << 22
"""Scores per head up to which the padded kernel is used. With 12 heads of 64 they are 13 GFLOP, which takes an H100
about as long as the launches around it (an estimate: 0.1 ms), however much of that is padding; their mask takes 12 MiB.
It needs no compiling: short runs, small data and prompts begin at once. A score bias has a term for every head, stored
for the backward of every layer, so that the scores of all heads count."""
NARROW = 16
"""The width of values where only the sum of the exponentiated scores is needed, the least that the kernel allows."""


def flex_suits(request: Request) -> bool:
    """Whether the device is CUDA, heads have at least 16 numbers, and there are rows."""
    enough = min(request.q.shape[-1], request.v.shape[-1]) >= NARROW
    return request.q.is_cuda and enough and request.queries.rows > 0 and request.keys.rows > 0


def flex_pays(request: Request) -> bool:
    """Whether there are more scores than `SMALL` when padded, and keys are consecutive, as others would be moved
    first."""
    q_rows, k_rows = max(request.queries.lengths, default=0), max(request.keys.lengths, default=0)
    each = 1 if request.score_bias is None else request.q.shape[1]
    large = len(request.queries.lengths) * q_rows * k_rows * each > SMALL
    return large and not isinstance(request.keys, CacheLayout)


def flex_lacks(request: Request) -> str | None:
    """The feature that flex lacks: it never returns weights, and a score bias must have a term for single scores."""
    if request.score_bias is not None and request.score_bias.score_mod is None:
        return f"the score bias {type(request.score_bias).__name__}, which has no score_mod"
    learns = request.score_bias is not None and any(p.requires_grad for p in request.score_bias.parameters())
    if learns and torch.are_deterministic_algorithms_enabled():  # the backward adds to shared numbers in any order
        return f"the score bias {type(request.score_bias).__name__}, which learns, in one order (train.deterministic)"
    return "weights to look at" if request.need_weights else None


def flex(request: Request) -> Result:
    """flex_attention over all rows as one sequence, with the predicate as mask_mod and the score bias as score_mod."""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in contiguous(request))
    blocks, score_bias = _blocks_of(request), request.score_bias
    score_mod = score_bias.score_mod(request.queries, request.keys) if score_bias and score_bias.score_mod else None
    if q.is_cuda:
        _announce(request)
    if request.dropout == 0.0:
        out = _function(_attended, q.is_cuda)(q, k, v, blocks, score_mod, request.scale)
    else:
        seed = torch.randint(2**31 - 1, (), device=q.device, dtype=torch.int32)
        drop = _drop(seed, request.dropout, score_mod)
        out = _function(_dropped, q.is_cuda)(q, k, v, blocks, score_mod, drop, request.dropout, request.scale)
    return request.queries.restored(out.squeeze(0).transpose(0, 1)), None


def _attended(q: Tensor, k: Tensor, v: Tensor, blocks: Any, score_mod: ScoreMod | None, scale: float | None) -> Tensor:
    out, log_sum = _flex_call(q, k, v, blocks, score_mod, scale)
    return out.masked_fill((log_sum == float("-inf")).unsqueeze(-1), 0.0)


def _dropped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Any,
    score_mod: ScoreMod | None,
    drop: ScoreMod,
    p: float,
    scale: float | None,
) -> Tensor:
    """Attention with exact dropout of the weights. With the dropped keys masked the kernel returns o' and log-sum l';
    with all keys it returns l; the dropped-out result is o' exp(l' - l) / (1 - p). Which weights drop is a hash of
    (seed, head, q, k).

    No score_mod yields both sums at once, so the kernel runs twice. The second time the values, on which l does not
    depend, are as narrow as possible. Their output is added 0 times, as inductor has no backward of a sum alone.
    """
    kept, kept_sum = _flex_call(q, k, v, blocks, drop, scale)
    unused, full_sum = _flex_call(q, k, v[..., :NARROW].detach(), blocks, score_mod, scale)
    nothing = (kept_sum == float("-inf")) | (full_sum == float("-inf"))
    difference = kept_sum - full_sum + 0.0 * unused.sum(-1)
    ratio = torch.exp(difference.masked_fill(nothing, float("-inf"))) / (1.0 - p)
    return kept.masked_fill(nothing.unsqueeze(-1), 0.0) * ratio.unsqueeze(-1).to(kept.dtype)


def _flex_call(
    q: Tensor, k: Tensor, v: Tensor, blocks: Any, score_mod: ScoreMod | None, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result and the log-sum of the exponentiated scores."""
    options: Any = {"score_mod": score_mod, "block_mask": blocks, "scale": scale, "return_aux": AuxRequest(lse=True)}
    out, extra = flex_attention(q, k, v, enable_gqa=k.shape[1] != q.shape[1], **options)
    assert extra.lse is not None
    return out, extra.lse


@lru_cache(maxsize=4)
def _function(function: Any, compiled: bool) -> Any:
    if not compiled:
        return function
    return torch.compile(function, dynamic=True, fullgraph=True, recompile_limit=KINDS)  # type: ignore[call-overload]


_announced: set[Any] = set()


def _announce(request: Request) -> None:
    """Log that a kind of call is compiled, before it is: calls with equal properties share the code."""
    score_bias, names = (
        request.score_bias and type(request.score_bias),
        (request.queries.integers, request.keys.integers),
    )
    sizes = (
        request.q.shape[1:],
        request.k.shape[1],
        request.v.shape[1:],
        request.q.dtype,
        request.q.requires_grad,
        request.scale,
    )
    kind = *map(tuple, names), request.window is None, score_bias, request.dropout > 0, *sizes
    if kind not in _announced:
        _announced.add(kind)
        log.info("attention of %s: compiling flex, about a minute", request.label or "rows")


def _blocks_of(request: Request) -> Any:
    queries, keys = request.queries, request.keys
    return queries.kept(keys, ("flex", request.window), lambda: block_mask(request, _mask_mod(request)))


def _mask_mod(request: Request) -> Any:
    queries, keys = request.queries, request.keys
    q_sequence, k_sequence = queries.sequence_ids, keys.sequence_ids
    q_place, k_place = queries.index, keys.index
    # copies: fields are in one buffer, and compiled code would check the offset of each
    q_integers = {name: values.clone() for name, values in queries.contiguous_integers.items()}
    k_integers = q_integers if keys is queries else {n: t.clone() for n, t in keys.contiguous_integers.items()}
    window = request.window

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        mask = q_sequence[q] == k_sequence[k]
        seen = _visible_pair(q_integers, k_integers, q, k)
        if seen is not None:
            mask = mask & seen
        if window is not None:
            sides = _single(q_integers, q), _single(k_integers, k)
            close = near(*sides, q_place[q].unsqueeze(-1), k_place[k].unsqueeze(-1), window)
            mask = mask & close.squeeze(-1).squeeze(-1)
        return mask

    return mask_mod


def _visible_pair(q_integers: dict[str, Tensor], k_integers: dict[str, Tensor], q: Tensor, k: Tensor) -> Tensor | None:
    """The predicate of `visibility.visible` for single rows: the same function, on 0-d integers."""
    seen = visible(_single(q_integers, q), _single(k_integers, k))
    return None if seen is None else seen.squeeze(-1).squeeze(-1)


def _single(integers: dict[str, Tensor], row: Tensor) -> dict[str, Tensor]:
    """The integers of one row [1]."""
    return {name: values[row].unsqueeze(-1) for name, values in integers.items()}


def _drop(seed: Tensor, p: float, modified: ScoreMod | None) -> ScoreMod:
    """The scores, with the score bias, without dropped ones."""
    threshold = int(p * 2**24)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        x = seed ^ (q.to(torch.int32) * 73856093) ^ (k.to(torch.int32) * 19349663) ^ (h.to(torch.int32) * 83492791)
        for _ in range(2):
            x = (x ^ (x >> 15)) * 0x2C1B3C6D
            x = (x ^ (x >> 12)) * 0x297A2D39
        kept = score if modified is None else modified(score, b, h, q, k)
        return torch.where(((x ^ (x >> 15)) & 0xFFFFFF) < threshold, float("-inf"), kept)

    return score_mod
