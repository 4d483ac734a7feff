"""The Transformer layer on one stream (Vaswani et al., arXiv:1706.03762; BERT, arXiv:1810.04805)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from torch import Tensor, nn

from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions, MultiHeadAttention
from workbench.models.context import Context


class SelfLayer(nn.Module):
    """Transformer layer on one stream (Vaswani et al., arXiv:1706.03762; BERT, arXiv:1810.04805). It is x = norm(x +
    attention(x)), then x = norm(x + ffn(x)). Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        attention_norm: whether attention reads normed rows, where `norm_place` is pre; ModernBERT's first layer does
            not, as the embedding ends with a norm.
        options: those of every layer, `workbench.models.blocks.LayerOptions`.
    """

    kind: Callable[..., MultiHeadAttention] = MultiHeadAttention
    """The attention, which layers that derive from this one replace."""

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        attention_norm: bool = True,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        block = LayerOptions(num_heads, **options)
        self.stream = stream
        self.reads = self.changes = (stream,)
        self.attention = AttentionBlock(sizes[stream], block, normed=attention_norm, kind=self.kind)
        self.feed_forward = FeedForwardBlock(sizes[stream], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows = self.attention(hidden[self.stream], context, (self.stream,))
        return {**hidden, self.stream: self.feed_forward(rows, context)}
