"""Norms over the last dimension of rows, by the names of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

NormKind = Literal["layer", "rms", "unbiased", "affine"]


class UnbiasedNorm(nn.Module):
    """K-BERT's norm: gain * (x - mean) / (std + eps) + bias, with the unbiased standard deviation (divide by n - 1)."""

    def __init__(self, size: int, eps: float = 1e-6, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        scaled = self.weight * (x - mean) / (x.std(-1, keepdim=True) + self.eps)
        return scaled if self.bias is None else scaled + self.bias


class AffineNorm(nn.Module):
    """MobileBERT's replacement of a norm (arXiv:2004.02984, equation 6): gain * x + bias."""

    def __init__(self, size: int, eps: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x if self.bias is None else self.weight * x + self.bias


NORMS: dict[NormKind, Callable[..., nn.Module]] = {
    "layer": nn.LayerNorm,
    "unbiased": UnbiasedNorm,
    "affine": AffineNorm,
}


def make_norm(kind: NormKind, size: int, eps: float, bias: bool = True) -> nn.Module:
    """A norm over the last dimension: `layer`, `rms` (which never has a bias), `unbiased` (K-BERT's), or `affine`
    (MobileBERT's)."""
    return nn.RMSNorm(size, eps=eps) if kind == "rms" else NORMS[kind](size, eps=eps, bias=bias)
