"""Low-rank adaptation (LoRA, Hu et al., arXiv:2106.09685, section 4.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from workbench.models.adapter import Adapter
from workbench.options.bounds import Dropout, Positive, Size


class Lora(Adapter):
    """Low-rank adaptation (LoRA) of a linear layer (Hu et al., arXiv:2106.09685). Its output is W x + (alpha / rank) B
    A x, with A [rank, in] and B [out, rank]. B begins at 0. Exported weights contain the change.

    Args:
        rank: rank of the change.
        alpha: scale of the change, times `rank`.
        dropout: dropout of x before A.
    """

    def __init__(
        self, in_size: Size, out_size: Size, rank: Size = 8, alpha: Positive = 16.0, dropout: Dropout = 0.0
    ) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(in_size, rank, bias=False)
        self.up = nn.Linear(rank, out_size, bias=False)

    def initialise(self, scale: float) -> None:
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, given: Tensor, made: Tensor) -> Tensor:
        return made + self.scale * self.up(self.down(self.dropout(given)))

    @torch.no_grad()
    def merge(self, linear: nn.Linear) -> None:
        linear.weight += self.scale * self.up.weight @ self.down.weight
