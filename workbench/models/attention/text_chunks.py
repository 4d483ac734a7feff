"""The rows of texts in chunks of equal size, for attention whose sums over a text are products of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.models.layout import Layout
from workbench.sequences.pattern import Pattern, pattern_of
from workbench.sequences.transfer import integers_on_device

SIZE = 64


@dataclass
class TextChunks:
    """Chunks of rows; each text begins a chunk. Several texts may be packed into a sequence (`doc`).

    Attributes:
        rows: the row at each slot, in contiguous order, 0 at padding [chunks, size].
        valid: whether a slot has a row [chunks, size].
        slots: the slot of each row, in contiguous order [rows].
        texts: the text of each chunk [chunks].
        first: the first chunk of the text of each chunk [chunks].
        places: the place in its text of the row at each slot [chunks, size].
        lengths: rows of each text, on the host.
        causal: whether a row sees those up to itself, and not all of its text.
    """

    rows: Tensor
    valid: Tensor
    slots: Tensor
    texts: Tensor
    first: Tensor
    places: Tensor
    lengths: list[int]
    causal: bool

    def cut(self, values: Tensor) -> Tensor:
        """Values of rows in contiguous order [rows, ...] -> [chunks, size, ...], 0 at padding."""
        grid = values.index_select(0, self.rows.flatten()).unflatten(0, self.rows.shape)
        return grid * self.valid.view(*self.valid.shape, *[1] * (values.dim() - 1)).to(grid.dtype)

    def joined(self, grid: Tensor) -> Tensor:
        """A grid [chunks, size, ...] -> the values of the rows [rows, ...]."""
        return grid.flatten(0, 1).index_select(0, self.slots)

    def sums(self, chunks: Tensor) -> Tensor:
        """Values of chunks [chunks, ...] -> the sum over each text [texts, ...]."""
        return chunks.new_zeros(len(self.lengths), *chunks.shape[1:]).index_add(0, self.texts, chunks)


def text_chunks(layout: Layout, what: str, size: int = SIZE) -> TextChunks:
    """The chunks of a layout's texts, made once; `what` names the attention in messages, `size` is that of a chunk.

    Raises:
        WorkbenchError: rows of a text neither see all of it nor those up to themselves.
    """
    return layout.kept(layout, ("text chunks", size), lambda: _chunks(layout, what, size))


def _chunks(layout: Layout, what: str, size: int) -> TextChunks:
    pattern = _pattern(layout)
    if pattern is None or pattern.documents is None or pattern.until or pattern.branches:
        raise WorkbenchError(f"{what} reads texts as a whole, and here rows hide from others; use the layer self")
    if not (pattern.full or pattern.causal):
        raise WorkbenchError(
            f"{what} reads a text as a whole or up to each row, and here rows see it in another order (rank); use the "
            "layer self"
        )
    lengths = [rows for documents in pattern.documents for rows in documents if rows]
    counts = [-(-length // size) for length in lengths]
    sizes, chunks = torch.tensor(lengths), torch.tensor(counts)
    texts = torch.repeat_interleave(chunks)
    first = torch.tensor([0, *accumulate(counts)])[:-1][texts]
    places = (torch.arange(len(texts)) - first)[:, None] * size + torch.arange(size)
    valid = places < sizes[texts][:, None]
    rows = torch.where(valid, (sizes.cumsum(0) - sizes)[texts][:, None] + places, 0)
    slots = valid.flatten().nonzero()[:, 0]
    parts = [rows, valid.long(), slots, texts, first, places]
    rows, real, slots, texts, first, places = integers_on_device(parts, layout.device)
    return TextChunks(rows, real > 0, slots, texts, first, places, lengths, causal=not pattern.full)


def _pattern(layout: Layout) -> Pattern | None:
    """The pattern, which for rows of a KV cache is read from their integers."""
    if layout.pattern is not None or len(layout.streams) != 1:
        return layout.pattern
    (stream,) = layout.streams
    return pattern_of(layout.lengths, {name: stream.known(name).numpy() for name in layout.integers})
