"""Rotary positions (Su et al., RoFormer, arXiv:2104.09864, eq. 34)."""

from __future__ import annotations

import torch
from torch import Tensor

Turns = tuple[Tensor, Tensor]


def turns(positions: Tensor, size: int, dtype: torch.dtype, base: float = 10000.0) -> Turns:
    """What heads of an even `size` are multiplied by in rows at these positions [rows], the same in all layers: the
    cosines of the angles, and their sines, of the first half with a minus, each [rows, 1, size]."""
    half = size // 2
    frequencies = base ** (-torch.arange(half, device=positions.device, dtype=torch.float32) / half)
    angles = positions.float()[:, None, None] * frequencies
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(x: Tensor, by: Turns) -> Tensor:
    """Rotate pairs (i, i + half) of each head of x [rows, heads, size] by their `turns`; of heads of an odd size the
    last number stays as it is."""
    cos, sin = by
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat([rotate(x[..., :size], by), x[..., size:]], -1)
    return x * cos + x.roll(size // 2, -1) * sin
