"""One-way cross-attention: one stream reads another (Vaswani et al., arXiv:1706.03762; ALBEF, arXiv:2107.07651)."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from workbench.models.context import Context
from workbench.models.sublayers import AttentionBlock, BlockOptions, FeedForwardBlock, Options
from workbench.options.bounds import Heads, Word


class Cross(nn.Module):
    """Self-attention on `stream`, then attention from it to `to`, then feed-forward; `to` is unchanged.

    Options as for `Self`. `self_attention: false` leaves the first part out.
    """

    def __init__(
        self,
        stream: Word,
        to: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        self_attention: bool = True,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        block = Options(num_heads, **options)
        self.stream, self.source = stream, to
        self.self_attention = AttentionBlock(sizes[stream], block) if self_attention else None
        self.cross_attention = AttentionBlock(sizes[stream], block, sizes[to])
        self.feed_forward = FeedForwardBlock(sizes[stream], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        rows = hidden[self.stream]
        if self.self_attention is not None:
            rows = self.self_attention(rows, context, (self.stream,))
        if self.source in hidden:
            rows = self.cross_attention(rows, context, (self.stream,), hidden[self.source], (self.source,))
        return {**hidden, self.stream: self.feed_forward(rows)}
