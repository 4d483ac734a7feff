"""Vectors of sequences in a common space: a pooled row, a norm, a projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.interop.sentence_modules import VectorLayers
from workbench.models.feed_forward import ACTIVATIONS, Ungated
from workbench.models.pooler import rows_at
from workbench.pretraining.forward import NetworkOutput
from workbench.sequences.batch import Batch
from workbench.sequences.transfer import on_device

Pool = Literal["first", "mean", "last"]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The layers of a common space.

    Attributes:
        pools: the row of a sequence to use, by stream.
        size: width of the space; None: the pooled states are the vectors, without a projection.
        projected: the streams that are projected.
        norm: a LayerNorm on the pooled state.
        bias: whether the projection has one.
        activation: behind the projection.
        cosine: whether the vectors are normalised.
        tap: the layer `tap` whose streams are read; None: the last layer.
    """

    pools: Mapping[str, Pool]
    size: int | None
    projected: frozenset[str]
    norm: bool = False
    bias: bool = False
    activation: Ungated | None = None
    cosine: bool = True
    tap: str | None = None


class CommonSpace(nn.Module):
    """Projections of streams into their common space; sides that are one stream share theirs.

    Args:
        streams: the stream of each side.
        sizes: the width of each stream.
    """

    def __init__(self, space: Space, streams: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.options, self.streams, self.pools, self.tap = space, dict(streams), space.pools, space.tap
        self.norms = nn.ModuleDict({s: nn.LayerNorm(sizes[s]) if space.norm else nn.Identity() for s in self.pools})
        self.projections = nn.ModuleDict({s: self._projection(s, sizes[s]) for s in self.pools})

    def _projection(self, stream: str, width: int) -> nn.Module:
        size = self.options.size
        if size is None or stream not in self.options.projected:
            return nn.Identity()
        return nn.Linear(width, size, bias=self.options.bias)

    def forward(self, read: NetworkOutput, stream: str, sequences: list[int] | None = None) -> Tensor:
        """The vector of each sequence, by default of all, from its rows of a stream [sequences, size], float32.

        Raises:
            WorkbenchError: the network has no such tap.
        """
        states = read.at(self.tap)
        return self.placed(stream, pool_rows(states[stream], read.batch, stream, self.pools[stream], sequences))

    def placed(self, stream: str, states: Tensor) -> Tensor:
        """States of a stream [..., hidden_size] in the common space [..., size], float32."""
        vectors, activation = self.projections[stream](self.norms[stream](states)).float(), self.options.activation
        vectors = vectors if activation is None else ACTIVATIONS[activation](vectors)
        return F.normalize(vectors, dim=-1) if self.options.cosine else vectors

    def vector_layers(self, stream: str) -> VectorLayers:
        """The layers of a stream's vectors, for an export."""
        norm, linear = self.norms[stream], self.projections[stream]
        return VectorLayers(
            self.pools[stream],
            norm if isinstance(norm, nn.LayerNorm) else None,
            linear if isinstance(linear, nn.Linear) else None,
            self.options.activation,
            self.options.cosine,
        )


def pool_rows(rows: Tensor, batch: Batch, stream: str, pool: Pool, sequences: list[int] | None = None) -> Tensor:
    """One row for each sequence from the rows of a stream: its first, its last, or their mean [sequences, hidden_size].
    That of a sequence without rows is 0.

    Args:
        sequences: those that are pooled; by default all.
    """
    offsets, counts = batch.streams[stream].offsets, batch.streams[stream].lengths
    chosen = slice(None) if sequences is None else on_device(sequences, offsets.device)
    if pool != "mean":
        places = offsets[:-1] if pool == "first" else offsets[1:] - 1
        return rows_at(rows, places[chosen], counts if sequences is None else [counts[number] for number in sequences])
    rows, lengths = rows.float(), offsets.diff()
    sequence = torch.repeat_interleave(lengths, output_size=len(rows))
    sums = rows.new_zeros(len(lengths), rows.shape[1]).index_add(0, sequence, rows)
    return (sums / lengths.clamp(min=1)[:, None])[chosen]
