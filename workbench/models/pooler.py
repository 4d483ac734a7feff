"""Poolers: the vector of a sequence, from the states of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Epsilon, Size
from workbench.models.feed_forward import ACTIVATIONS, Ungated
from workbench.sequences.batch import Stream
from workbench.sequences.transfer import on_device


@dataclass(frozen=True)
class PoolerOptions:
    """The layers of every pooler behind the vector of a sequence; by default those of BERT's pooled output.

    Attributes:
        dense: whether a linear layer follows.
        size: width of the linear layer; by default the stream's.
        bias: whether this layer and the norm have a bias.
        activation: of the linear layer; null for none.
        norm_eps: that of a last norm; null for no norm.
    """

    dense: bool = True
    size: Size | None = None
    bias: bool = True
    activation: Ungated | None = "tanh"
    norm_eps: Epsilon | None = None


class Pooler(nn.Module):
    """Base of the poolers: norm(activation(W p + b)), by default tanh(W p + b), with p from `vectors`.

    The `__init__` of a component gets `hidden_size`, that of its stream.

    Attributes:
        width: of p, in multiples of the states' width.
        out_size: width of the result.
    """

    width = 1

    def __init__(self, hidden_size: Size, **options: Annotated[Any, PoolerOptions]) -> None:
        super().__init__()
        self.options = stated = PoolerOptions(**options)
        inner = self.width * hidden_size
        self.out_size = (stated.size or hidden_size) if stated.dense else inner
        if stated.dense:
            self.dense = nn.Linear(inner, self.out_size, bias=stated.bias)
        if stated.norm_eps is not None:
            self.norm = nn.LayerNorm(self.out_size, eps=stated.norm_eps, bias=stated.bias)

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        """p, a vector for each sequence, from the states of all rows.

        Args:
            rows: [rows, hidden_size], sequence after sequence.
            stream: their lengths, offsets and fields.

        Returns:
            [sequences, width * hidden_size]
        """
        raise NotImplementedError(f"{type(self).__name__} must define vectors")

    def forward(self, vectors: Tensor) -> Tensor:
        """p -> [sequences, out_size]."""
        options = self.options
        vectors = self.dense(vectors) if options.dense else vectors
        vectors = vectors if options.activation is None else ACTIVATIONS[options.activation](vectors)
        return vectors if options.norm_eps is None else self.norm(vectors)


def first_rows(rows: Tensor, stream: Stream) -> Tensor:
    """The state of the first row of each sequence, 0 where it has none [sequences, hidden_size]."""
    return rows_at(rows, stream.offsets[:-1], stream.lengths)


def last_rows(rows: Tensor, stream: Stream) -> Tensor:
    """The state of the last row of each sequence, 0 where it has none [sequences, hidden_size]."""
    return rows_at(rows, stream.offsets[1:] - 1, stream.lengths)


def summary_rows(rows: Tensor, stream: Stream) -> Tensor:
    """The state of the row that represents each sequence, 0 where it has none [sequences, hidden_size].

    This is the first ([CLS]), or, where a sequence is read from left to right (its `rank` rises), the last one, as in
    GPT: there the first row sees no other.
    """
    rank = stream.fields.get("rank")
    if rank is None or not len(rows):
        return first_rows(rows, stream)
    first, last = stream.offsets[:-1], stream.offsets[1:] - 1
    rises = rank[last.clamp_min(0)] > rank[first.clamp_max(len(rows) - 1)]
    return rows_at(rows, torch.where(rises, last, first), stream.lengths)


def rows_at(rows: Tensor, places: Tensor, lengths: Sequence[int]) -> Tensor:
    """The rows at the places of sequences [sequences, width]; 0 for a sequence of the length 0, whose place is that of
    a row of another one, or of none."""
    if all(lengths):
        return rows[places]
    there = on_device(torch.tensor([length > 0 for length in lengths]), rows.device)
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])])[torch.where(there, places, len(rows))]


def mean_rows(rows: Tensor, stream: Stream) -> Tensor:
    """The mean of the states of the rows of each sequence, 0 where it has none [sequences, hidden_size]."""
    return torch.stack([each.sum(0) / max(len(each), 1) for each in rows.split(stream.lengths)])


def max_rows(rows: Tensor, stream: Stream) -> Tensor:
    """The largest number of each feature in the rows of each sequence, 0 where it has none [sequences, hidden_size]."""
    nothing = rows.new_zeros(rows.shape[1])
    return torch.stack([each.amax(0) if len(each) else nothing for each in rows.split(stream.lengths)])
