"""Co-attention: two streams attend to each other (ViLBERT, arXiv:1908.02265; LXMERT, arXiv:1908.07490)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from annotated_types import Len
from torch import Tensor, nn

from workbench.core.options.bounds import Heads, Size, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class CoLayer(nn.Module):
    """Co-attention: each of two streams attends to the other (ViLBERT, arXiv:1908.02265; LXMERT, arXiv:1908.07490).
    Both read the states that entered the layer.

    Args:
        streams: the two streams.
        shared: one attention for both directions (LXMERT); needs equal hidden sizes.
        feed_forward: add a feed-forward block per stream (ViLBERT: yes; LXMERT's follows its self layers: no).
        intermediate_sizes: of the feed-forward blocks, by stream, where they differ.
        options: those of every layer, `workbench.models.blocks.LayerOptions`.
    """

    drawn_apart: ClassVar[bool] = True
    """In drawings each stream has a box of its own, which reads the other's (`workbench.recipe.drawing`)."""

    def __init__(
        self,
        streams: Annotated[list[Word], Len(2, 2)],
        sizes: dict[str, int],
        num_heads: Heads,
        shared: bool = False,
        feed_forward: bool = True,
        intermediate_sizes: dict[Word, Size] | None = None,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        self.streams = self.reads = self.changes = a, b = (streams[0], streams[1])
        self.attention = nn.ModuleDict()
        self.feed_forward = nn.ModuleDict()
        for name, other in ((a, b), (b, a)):
            own = {"intermediate_size": intermediate_sizes[name]} if intermediate_sizes else {}
            block = LayerOptions(num_heads, **{**options, **own})
            if shared and name == b:
                self.attention[name] = self.attention[a]
            else:
                self.attention[name] = AttentionBlock(sizes[name], block, sizes[other])
            if feed_forward:
                self.feed_forward[name] = FeedForwardBlock(sizes[name], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        a, b = self.streams
        if a not in hidden or b not in hidden:
            return hidden
        new = dict(hidden)
        for name, other in ((a, b), (b, a)):
            rows = self.attention[name](hidden[name], context, (name,), hidden[other], (other,))
            new[name] = self.feed_forward[name](rows, context) if name in self.feed_forward else rows
        return new
