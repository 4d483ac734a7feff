"""Co-attention: two streams attend to each other (ViLBERT, arXiv:1908.02265; LXMERT, arXiv:1908.07490)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.models.context import Context
from workbench.models.sublayers import AttentionBlock, FeedForwardBlock, Options


class Co(nn.Module):
    """Each of two streams attends to the other, both from the states that came in.

    Args:
        streams: the two streams.
        shared: one attention for both directions (LXMERT); needs equal hidden sizes.
        inner_size: heads x head size of the attention (ViLBERT: 1024), default the queries' hidden size.
        feed_forward: add a feed-forward block per stream (ViLBERT: yes; LXMERT's follows its self layers: no).
        Other options as for `Self`.
    """

    def __init__(
        self,
        streams: list[str],
        sizes: dict[str, int],
        num_heads: int,
        shared: bool = False,
        inner_size: int | None = None,
        feed_forward: bool = True,
        intermediate_size: dict[str, int] | int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: str = "gelu",
        norm: str = "layer",
        norm_place: str = "post",
        norm_eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.streams = a, b = (streams[0], streams[1])
        self.attention = nn.ModuleDict()
        self.feed_forward = nn.ModuleDict()
        for name, other in ((a, b), (b, a)):
            width = intermediate_size.get(name) if isinstance(intermediate_size, dict) else intermediate_size
            options = Options(num_heads, width, dropout, attention_dropout, activation, norm, norm_place, norm_eps)
            if shared and name == b:
                self.attention[name] = self.attention[a]
            else:
                self.attention[name] = AttentionBlock(sizes[name], options, sizes[other], inner_size)
            if feed_forward:
                self.feed_forward[name] = FeedForwardBlock(sizes[name], options)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        a, b = self.streams
        if a not in hidden or b not in hidden:
            return hidden
        new = dict(hidden)
        for name, other in ((a, b), (b, a)):
            rows = self.attention[name](hidden[name], context, (name,), hidden[other], (other,))
            new[name] = self.feed_forward[name](rows) if name in self.feed_forward else rows
        return new
