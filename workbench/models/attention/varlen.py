"""Flash attention over offsets: CUDA, 16 bit, everything in a sequence visible."""

from __future__ import annotations

import math

import torch

from workbench.models.attention.request import Request, Result, contiguous, restored


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
    q, k, v = contiguous(request)
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
    return restored(out, queries), None
