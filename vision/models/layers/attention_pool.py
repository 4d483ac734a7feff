"""Attentional pooling: learned queries read a stream (CoCa, arXiv:2205.01917, 3.2; Lee et al., arXiv:1810.00825;
SigLIP, arXiv:2303.15343)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.options.bounds import (
    ComponentName,
    ComponentSpec,
    CountOrZero,
    Dropout,
    Epsilon,
    Heads,
    Positive,
    Size,
    Word,
)
from workbench.models.blocks import FeedForwardBlock, LayerOptions, MultiHeadAttention
from workbench.models.context import Context
from workbench.models.feed_forward import Activation


class AttentionPoolLayer(nn.Module):
    """Attentional pooling: learned queries read a stream (CoCa, arXiv:2205.01917; Lee et al., arXiv:1810.00825). It is
    x = attention(x, to, to), a single multi-head attention with the rows of `stream` as queries. With `feed_forward`
    x = x + ffn(norm(x)) follows (SigLIP, arXiv:2303.15343).

    There is neither a residual nor a norm around the attention, so that its outputs are means of the values: put a
    `norm` layer before and after it. Other streams pass through.

    Args:
        stream: the stream of the queries (`queries`), one row for each output row.
        to: the stream that is pooled.
        sizes: hidden size of every stream (given by the network).
        attention_dropout: of the attention weights.
        score_bias, window, scale, bias: as of every layer (`workbench.models.blocks.LayerOptions`); places count from 0
            separately for the queries and for the rows that they read.
        feed_forward: whether a feed-forward network with its residual and norm follows.
        intermediate_size, activation, norm_eps: of this network; by default 4 x the width.
    """

    def __init__(
        self,
        stream: Word,
        to: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        attention_dropout: Dropout = 0.0,
        score_bias: ComponentSpec | ComponentName | None = None,
        window: CountOrZero | None = None,
        scale: Positive | None = None,
        bias: bool = True,
        feed_forward: bool = False,
        intermediate_size: Size | None = None,
        activation: Activation = "gelu",
        norm_eps: Epsilon = 1e-6,
    ) -> None:
        super().__init__()
        self.stream, self.source = stream, to
        self.reads, self.changes = (stream, to), (stream,)
        options = LayerOptions(
            num_heads, attention_dropout=attention_dropout, score_bias=score_bias, window=window, scale=scale, bias=bias
        )
        self.attention = MultiHeadAttention(sizes[stream], options, key_size=sizes[to])
        block = LayerOptions(
            num_heads,
            intermediate_size=intermediate_size,
            dropout=0.0,
            norm_place="pre",
            norm_eps=norm_eps,
            bias=bias,
            activation=activation,
        )
        self.feed_forward = FeedForwardBlock(sizes[stream], block) if feed_forward else None

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden or self.source not in hidden:
            return hidden
        names = ((self.stream,), (self.source,))
        rows, keys = hidden[self.source], context.layout(self.source)
        if context.keeps("rows"):
            rows, keys = context.recall(names[1], rows)
        queries = context.layout(self.stream)
        pooled = self.attention(hidden[self.stream], rows, queries, keys, context=context, names=names)
        return {**hidden, self.stream: pooled if self.feed_forward is None else self.feed_forward(pooled, context)}
