"""Flash attention over offsets: CUDA, 16 bit, stretches of rows that all see each other, or those before them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from workbench.models.attention.reach import Reach, reach
from workbench.models.attention.request import Request, Result, contiguous
from workbench.models.layout import Layout
from workbench.sequences.transfer import on_device


def varlen_suits(request: Request) -> bool:
    """Whether the device is CUDA and there are rows."""
    return request.q.is_cuda and request.queries.rows > 0 and request.keys.rows > 0


@lru_cache
def has_flash(device: torch.device) -> bool:
    """Whether torch's flash attention runs on a CUDA device: from compute capability 8.0 on (no V100, no T4)."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def varlen_lacks(request: Request) -> str | None:
    """The feature that varlen lacks: it supports 16 bits, offsets, causality and a window, and nothing else."""
    if request.q.dtype not in (torch.float16, torch.bfloat16) and request.q.is_cuda:
        return f"{str(request.q.dtype).removeprefix('torch.')} (16 bits alone)"
    if request.q.device.type == "cuda" and not has_flash(request.q.device):
        return "GPUs below compute capability 8.0"
    if request.q.shape[-1] % 8 or request.q.shape[-1] > 256:
        return f"heads of {request.q.shape[-1]} (multiples of 8 up to 256 alone)"
    if request.score_bias is not None:
        return "any score bias"
    if request.v.shape != request.k.shape:
        return "values of another width than keys"
    if request.need_weights:
        return "weights to look at"
    found = reach(request)
    if isinstance(found, str):
        return found
    if any(q and not k for q, k in zip(found.queries, found.keys, strict=True)):
        return "a sequence that has nothing to read"
    return None


@dataclass(frozen=True)
class Offsets:
    """The arguments of the kernel that define the visibility; -1: a window without end."""

    queries: Tensor
    keys: Tensor
    longest: tuple[int, int]
    causal: bool
    window: tuple[int, int]


def varlen(request: Request) -> Result:
    """Flash attention with cumulative lengths; the operator behind torch's jagged tensors, since it has dropout."""
    q, k, v = contiguous(request)
    at = request.queries.kept(request.keys, ("offsets", request.window), lambda: _offsets(request))
    return request.queries.restored(_flash(q, k, v, at, request.dropout, request.factor)), None


def _flash(q: Tensor, k: Tensor, v: Tensor, at: Offsets, dropout: float, scale: float) -> Tensor:
    out: Tensor = torch.ops.aten._flash_attention_forward(
        *(q, k, v, at.queries, at.keys, *at.longest),
        *(dropout, at.causal, False),
        scale=scale,
        window_size_left=at.window[0],
        window_size_right=at.window[1],
    )[0]
    return out


def _offsets(request: Request) -> Offsets:
    found = reach(request)
    assert isinstance(found, Reach)
    left = -1 if found.window is None else found.window
    queries = _cumulated(found.queries, request.queries)
    keys = queries if request.queries is request.keys else _cumulated(found.keys, request.keys)
    longest = max(found.queries), max(found.keys)
    return Offsets(queries, keys, longest, found.causal, (left, 0 if found.causal else left))


def _cumulated(stretches: list[int], layout: Layout) -> Tensor:
    """The beginning of each stretch, and the number of rows [stretches + 1], computed on the host unless they are those
    of sequences.

    A copy from pinned memory brings them, without a wait.
    """
    if stretches == layout.lengths:
        return layout.offsets.int()
    offsets = torch.tensor([0, *accumulate(stretches)], dtype=torch.int32)
    return on_device(offsets, layout.device)
