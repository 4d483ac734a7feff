"""The Transformer layer on one stream (Vaswani et al., arXiv:1706.03762; BERT, arXiv:1810.04805)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.models.context import Context
from workbench.models.sublayers import AttentionBlock, FeedForwardBlock, Options


class Self(nn.Module):
    """x = norm(x + attention(x)); x = norm(x + ffn(x)) on the rows of one stream; other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        num_heads, intermediate_size (default 4 x hidden), dropout, attention_dropout, activation, norm, norm_place,
            norm_eps: as in `Options`. rotary: base of rotary positions, where wanted.
    """

    def __init__(
        self,
        stream: str,
        sizes: dict[str, int],
        num_heads: int,
        intermediate_size: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: str = "gelu",
        norm: str = "layer",
        norm_place: str = "post",
        norm_eps: float = 1e-12,
        rotary: float | None = None,
    ) -> None:
        super().__init__()
        options = Options(
            num_heads, intermediate_size, dropout, attention_dropout, activation, norm, norm_place, norm_eps, rotary
        )
        self.stream = stream
        self.attention = AttentionBlock(sizes[stream], options)
        self.feed_forward = FeedForwardBlock(sizes[stream], options)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows = self.attention(hidden[self.stream], context, (self.stream,))
        return {**hidden, self.stream: self.feed_forward(rows)}
