"""One-way cross-attention: one stream reads another (Vaswani et al., arXiv:1706.03762; ALBEF, arXiv:2107.07651)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class CrossLayer(nn.Module):
    """Transformer decoder layer: self-attention on `stream`, cross-attention from `stream` to `to`, feed-forward
    (Vaswani et al., arXiv:1706.03762). `to` is unchanged.

    `to` may be several streams of one hidden size, which are read as one sequence (UniVL's decoder).

    Options as for `self`; `score_bias` and `window` apply to the self-attention, since the places of two streams are
    unrelated.

    Args:
        self_attention: whether there is self-attention.
        key_norm: in pre-norm layers, a norm before `to` is read; none where `to` ends with a `norm` layer (T5).

    Raises:
        WorkbenchError: a score bias or window without self-attention, or streams of several hidden sizes to be read.
    """

    def __init__(
        self,
        stream: Word,
        to: Word | Annotated[list[Word], MinLen(1)],
        sizes: dict[str, int],
        num_heads: Heads,
        self_attention: bool = True,
        key_norm: bool = True,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        block = LayerOptions(num_heads, **options)
        across = replace(block, score_bias=None, window=None)
        if not self_attention and block != across:
            raise WorkbenchError(
                "score_bias and window apply to the self-attention, and self_attention is false; leave them out"
            )
        self.stream, self.sources = stream, (to,) if isinstance(to, str) else tuple(to)
        found = {name: sizes[name] for name in self.sources}
        if len(set(found.values())) != 1:
            raise WorkbenchError(f"streams that are read as one sequence have one hidden size; found {found}")
        self.reads, self.changes = (stream, *self.sources), (stream,)
        self.self_attention = AttentionBlock(sizes[stream], block) if self_attention else None
        self.cross_attention = AttentionBlock(sizes[stream], across, found[self.sources[0]], key_norm=key_norm)
        self.feed_forward = FeedForwardBlock(sizes[stream], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows = hidden[self.stream]
        if self.self_attention is not None:
            rows = self.self_attention(rows, context, (self.stream,))
        present = tuple(name for name in self.sources if name in hidden)
        if present:
            read = hidden[present[0]] if len(present) == 1 else torch.cat([hidden[name] for name in present])
            rows = self.cross_attention(rows, context, (self.stream,), read, present)
        return {**hidden, self.stream: self.feed_forward(rows, context)}
