"""Rotary positions (Su et al., RoFormer, arXiv:2104.09864, eq. 34)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate pairs (i, i + size/2) of each head of x [rows, heads, size] by positions [rows] * base^(-2i/size)."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = positions.float()[:, None, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :]], dim=-1)
