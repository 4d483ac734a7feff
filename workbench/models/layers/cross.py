"""One-way cross-attention: one stream reads another (Vaswani et al., arXiv:1706.03762; ALBEF, arXiv:2107.07651)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.models.context import Context
from workbench.models.sublayers import AttentionBlock, FeedForwardBlock, Options


class Cross(nn.Module):
    """Self-attention on `stream`, then attention from it to `to`, then feed-forward; `to` is unchanged.

    Options as for `Self`. `self_attention: false` leaves the first part out.
    """

    def __init__(
        self,
        stream: str,
        to: str,
        sizes: dict[str, int],
        num_heads: int,
        self_attention: bool = True,
        intermediate_size: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: str = "gelu",
        norm: str = "layer",
        norm_place: str = "post",
        norm_eps: float = 1e-12,
    ) -> None:
        super().__init__()
        options = Options(
            num_heads, intermediate_size, dropout, attention_dropout, activation, norm, norm_place, norm_eps
        )
        self.stream, self.source = stream, to
        self.self_attention = AttentionBlock(sizes[stream], options) if self_attention else None
        self.cross_attention = AttentionBlock(sizes[stream], options, sizes[to])
        self.feed_forward = FeedForwardBlock(sizes[stream], options)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        rows = hidden[self.stream]
        if self.self_attention is not None:
            rows = self.self_attention(rows, context, (self.stream,))
        if self.source in hidden:
            rows = self.cross_attention(rows, context, (self.stream,), hidden[self.source], (self.source,))
        return {**hidden, self.stream: self.feed_forward(rows)}
