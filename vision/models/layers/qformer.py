"""The layer of a Q-Former: learned queries and a text attend to each other, the queries alone read an image (BLIP-2,
arXiv:2301.12597)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from annotated_types import Len
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class QformerLayer(nn.Module):
    """Layer of a Q-Former (BLIP-2, arXiv:2301.12597, section 3.1): self-attention over queries and text as one
    sequence, cross-attention of the queries to an image, and a feed-forward network for each of the two streams.

    Which of them see each other is that of their rows' visibility. `to` is unchanged.

    Options as for `self`; `score_bias` and `window` apply to the self-attention.

    Args:
        streams: that of the learned queries (embedding and transform `queries`), and that of the text, as wide; without
            it the queries are alone (the second stage).
        to: the stream that the queries read; null for none (every second layer).
        sizes: hidden size of every stream (given by the network).

    Raises:
        WorkbenchError: the two streams have different widths.
    """

    def __init__(
        self,
        streams: Annotated[list[Word], Len(1, 2)],
        sizes: dict[str, int],
        num_heads: Heads,
        to: Word | None = None,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        found = {name: sizes[name] for name in streams}
        if len({*found.values()}) != 1:
            raise WorkbenchError(f"the streams of a Q-Former have one hidden size; found {found}")
        block, size = LayerOptions(num_heads, **options), sizes[streams[0]]
        self.queries, self.source = streams[0], to
        self.streams = self.changes = tuple(streams)
        self.reads = self.streams if to is None else (*self.streams, to)
        self.attention = AttentionBlock(size, block)
        across = replace(block, score_bias=None, window=None)
        self.cross_attention = None if to is None else AttentionBlock(size, across, sizes[to])
        self.feed_forward = nn.ModuleDict({name: FeedForwardBlock(size, block) for name in self.streams})

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        present = tuple(name for name in self.streams if name in hidden)
        if not present:
            return hidden
        rows = torch.cat([hidden[name] for name in present])
        attended = self.attention(rows, context, present).split([len(hidden[name]) for name in present])
        new = dict(zip(present, attended, strict=True))
        if self._reads_image(hidden, context):
            assert self.cross_attention is not None
            assert self.source is not None
            names = (self.queries,), (self.source,)
            new[self.queries] = self.cross_attention(
                new[self.queries], context, names[0], hidden[self.source], names[1]
            )
        return {**hidden, **{name: self.feed_forward[name](each, context) for name, each in new.items()}}

    def _reads_image(self, hidden: dict[str, Tensor], context: Context) -> bool:
        """Whether there are queries and an image; in a step of generation the queries are in the KV cache."""
        if self.source is None or self.queries not in hidden or self.source not in hidden:
            return False
        return len(hidden[self.queries]) > 0 or not context.keeps("keys")
