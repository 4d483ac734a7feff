"""The layer of a text that is read alone, read with an image, and written about it (BLIP, arXiv:2201.12086)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class MedLayer(nn.Module):
    """Layer of a multimodal mixture of encoder and decoder (BLIP, arXiv:2201.12086, section 3.1). A text is up to three
    streams, which do not see each other and share the feed-forward network:

        stream    self-attention                   cross-attention to the image
        alone     the same                         none
        written   one of its own                   the same

    Which rows of a stream see each other is that of their visibility. `to` is unchanged. Options as for `self`;
    `score_bias` and `window` apply to the self-attention.

    Args:
        stream: the text that is read with the image.
        to: the stream of the image.
        sizes: hidden size of every stream (given by the network).
        alone: the text that is read without it; null for none.
        written: the text that a decoder writes; null for none.

    Raises:
        WorkbenchError: two of the streams are one, or those of the text have different widths.
    """

    def __init__(
        self,
        stream: Word,
        to: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        alone: Word | None = None,
        written: Word | None = None,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        self.changes = tuple(name for name in (stream, alone, written) if name is not None)
        if len({*self.changes, to}) != len(self.changes) + 1:
            raise WorkbenchError(f"stream, alone, written and to are different streams; found {(*self.changes, to)}")
        found = {name: sizes[name] for name in self.changes}
        if len({*found.values()}) != 1:
            raise WorkbenchError(f"the streams of a text have one hidden size; found {found}")
        block, size = LayerOptions(num_heads, **options), sizes[stream]
        self.reads = (*self.changes, to)
        self.alone, self.written, self.source = alone, written, to
        self.self_attention = AttentionBlock(size, block)
        self.written_attention = None if written is None else AttentionBlock(size, block)
        self.cross_attention = AttentionBlock(size, replace(block, score_bias=None, window=None), sizes[to])
        self.feed_forward = FeedForwardBlock(size, block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        present = tuple(name for name in self.changes if name in hidden)
        if not present:
            return hidden
        rows = [self._attended(name, hidden, context) for name in present]
        parts = self.feed_forward(torch.cat(rows), context).split([len(each) for each in rows])
        return {**hidden, **dict(zip(present, parts, strict=True))}

    def _attended(self, name: str, hidden: dict[str, Tensor], context: Context) -> Tensor:
        """The rows of a stream behind its attention. A KV cache counts the calls, so none is left out in a step."""
        own = self.self_attention if self.written_attention is None or name != self.written else self.written_attention
        rows = own(hidden[name], context, (name,))
        if name == self.alone or self.source not in hidden:
            return rows
        return self.cross_attention(rows, context, (name,), hidden[self.source], (self.source,))
