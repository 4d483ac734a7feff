"""One learned vector for every row: the first state of a query stream (XLNet, arXiv:1906.08237, section 2.3: g = w)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Dropout, Size
from workbench.models.dropout import dropout


class VectorEmbedding(nn.Module):
    """One learned vector w for all rows: the first state of a query stream (XLNet, arXiv:1906.08237, section 2.3). It
    is dropout(w).

    Args:
        hidden_size: width of w.
    """

    def __init__(self, hidden_size: Size, dropout: Dropout = 0.1) -> None:
        super().__init__()
        self.hidden_size, self.dropout = hidden_size, dropout
        self.vector = nn.Parameter(torch.zeros(1, hidden_size))

    def initialise(self, scale: float) -> None:
        """Draw the vector as tables are drawn."""
        nn.init.normal_(self.vector, std=scale)

    def no_weight_decay(self) -> set[str]:
        """The vector, as it is a row of a table."""
        return {"vector"}

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """Fields input_ids [rows], of which only the length is used -> [rows, hidden_size]."""
        rows = self.vector.expand(len(fields["input_ids"]), -1)
        return dropout(rows, self.dropout, self.training)
