"""A stream that reads the vector of another one: the decoder of a sentence's neighbours (skip-thought, Kiros et al.,
arXiv:1506.06726)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.options.bounds import Word
from workbench.models.context import Context
from workbench.models.pooler import rows_at


class ConditionedLayer(nn.Module):
    """Adds a linear map of the vector of another stream to each row: x_t + W v (skip-thought, arXiv:1506.06726,
    equations 5 to 7). v is the last row of the other stream in the same sequence, 0 where it has none. Other streams
    pass through.

    A recurrent layer behind it adds W v to the input of all its gates, by its own matrices.

    Args:
        stream: the stream's name.
        of: the stream whose last row is read.
        sizes: hidden size of every stream (given by the network).
    """

    def __init__(self, stream: Word, of: Word, sizes: dict[str, int]) -> None:
        super().__init__()
        self.stream, self.of = stream, of
        self.reads, self.changes = (stream, of), (stream,)
        self.linear = nn.Linear(sizes[of], sizes[stream], bias=False)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden or self.of not in hidden:
            return hidden
        rows, vectors = hidden[self.stream], self.linear(self._vectors(hidden[self.of], context))
        repeats = context.layout(self.stream).offsets.diff()
        return {**hidden, self.stream: rows + vectors.repeat_interleave(repeats, 0, output_size=len(rows))}

    def _vectors(self, rows: Tensor, context: Context) -> Tensor:
        """The last row of the other stream in each sequence [sequences, hidden_size], also one that a cache has."""
        layout = context.layout(self.of)
        if context.keeps("keys") or context.keeps("rows"):
            rows, layout = context.recall((self.of,), rows)
        return rows_at(rows, layout.offsets[1:] - 1, layout.lengths)
