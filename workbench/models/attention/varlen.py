"""Flash attention over offsets: CUDA, 16 bit, everything in a sequence visible."""

from __future__ import annotations

from functools import lru_cache

import torch

from workbench.models.attention.request import Request, Result, contiguous


def varlen_suits(request: Request) -> bool:
    """CUDA, 16 bit, head size a multiple of 8, keys in every sequence."""
    return (
        request.q.is_cuda
        and has_flash(request.q.device)
        and request.q.dtype in (torch.float16, torch.bfloat16)
        and request.q.shape[-1] % 8 == 0
        and request.q.shape[-1] <= 256
        and request.queries.rows > 0
        and min(request.keys.lengths, default=0) > 0
    )


@lru_cache
def has_flash(device: torch.device) -> bool:
    """Whether torch's flash attention runs on a CUDA device: from compute capability 8.0 on (no V100, no T4)."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def varlen_lacks(request: Request) -> str | None:
    """It knows offsets and nothing else."""
    if not request.all_visible:
        return "sequences in which not all is visible"
    if request.relation is not None:
        return "any relation"
    if request.v.shape != request.k.shape:
        return "values of another width than keys"
    return "weights to look at" if request.need_weights else None


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
        scale=request.factor,
    )[0]
    return queries.restored(out), None
