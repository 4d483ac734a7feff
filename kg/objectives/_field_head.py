"""Predicting an integer field of a stream by the table that the stream's embedding has for it.

    scores = E t(h) + b,   t(h) = LayerNorm(gelu(W h + c))

E is the table, of the fields that an embedding calls `extra`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.models.network import Network


class FieldHead(nn.Module):
    """Scores of the values of a field for rows of a stream.

    Raises:
        WorkbenchError: the stream's embedding has no table of the field.
    """

    def __init__(self, network: Network, stream: str, field: str) -> None:
        super().__init__()
        self.stream, self.field = stream, field
        values, width = field_table(network, stream, field).shape
        self.dense = nn.Linear(network.sizes[stream], width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.bias = nn.Parameter(torch.zeros(values))

    def forward(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> [rows, values]."""
        table = field_table(network, self.stream, self.field)
        return F.linear(self.norm(F.gelu(self.dense(rows))), table, self.bias)


def field_table(network: Network, stream: str, field: str) -> Tensor:
    """The table of a field [values, width].

    Raises:
        WorkbenchError: the stream's embedding has none.
    """
    tables = getattr(dict(network.embeddings.items()).get(stream), "extra", {})
    if field not in tables:
        raise WorkbenchError(
            f"the objective predicts {field!r} with the table that the embedding of the stream {stream!r} has for it, "
            f"and it has none (it has {', '.join(tables) or 'none at all'}); add it to the embedding's `extra`"
        )
    weight: Tensor = tables[field].weight
    return weight
