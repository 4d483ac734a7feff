"""One Transformer layer over several streams as one sequence (UNITER, VisualBERT, ViLT: "single stream")."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class JointLayer(nn.Module):
    """Transformer layer over several streams as one sequence (single-stream models: UNITER, VisualBERT, ViLT). Its rows
    are those of all `streams`, sequence by sequence; the streams have equal hidden sizes.

    Options as for `self`.
    """

    def __init__(
        self,
        streams: Annotated[list[Word], MinLen(1)],
        sizes: dict[str, int],
        num_heads: Heads,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        found = {name: sizes[name] for name in streams}
        if len(set(found.values())) != 1:
            raise WorkbenchError(f"the streams of a joint layer have one hidden size; found {found}")
        block = LayerOptions(num_heads, **options)
        self.streams = self.reads = self.changes = tuple(streams)
        self.attention = self.attending(sizes[streams[0]], block)
        self.feed_forward = FeedForwardBlock(sizes[streams[0]], block)

    def attending(self, size: int, options: LayerOptions) -> AttentionBlock:
        """The attention of the layer, made once."""
        return AttentionBlock(size, options)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        present = tuple(name for name in self.streams if name in hidden)
        if not present:
            return hidden
        rows = torch.cat([hidden[name] for name in present])
        rows = self.feed_forward(self.attention(rows, context, present), context)
        parts = rows.split([hidden[name].shape[0] for name in present])
        return {**hidden, **dict(zip(present, parts, strict=True))}
