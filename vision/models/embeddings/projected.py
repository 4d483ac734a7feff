"""The first states of rows that a projector fills."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Size


class ProjectedEmbedding(nn.Module):
    """Zeros, in the place of which the layer `vision.projector` puts the projected rows of another stream (LLaVA 1.5,
    arXiv:2310.03744, section 3.3). The transform `vision.projected` makes the rows.

    Args:
        hidden_size: the width of the projected rows.
    """

    def __init__(self, hidden_size: Size) -> None:
        super().__init__()
        self.hidden_size = hidden_size

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`input_ids` [rows], of which only the length is used -> zeros [rows, hidden_size]."""
        numbers = fields["input_ids"]
        return torch.zeros(len(numbers), self.hidden_size, device=numbers.device)
