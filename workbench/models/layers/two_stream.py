"""XLNet's two-stream layer (Yang et al., NeurIPS 2019, arXiv:1906.08237, section 2.3), which MPNet has too.

    h = ffn(attention(queries h, keys and values h))      the content stream: a row sees itself
    g = ffn(attention(queries g, keys and values h))      the query stream: a row knows its position, not its token

with the same weights. Both are one call of attention: the integers of a row of g define the rows of h that it sees (a
`rank` that ends before its token). Without rows of g, as in encoding and fine-tuning, this is the layer `self`, with
its names of weights.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class TwoStreamLayer(nn.Module):
    """Two-stream self-attention layer (XLNet, arXiv:1906.08237, section 2.3; MPNet). The rows of `stream` attend to
    each other. The rows of the stream `query` attend to them, and no row attends to `query`.

    Options as for `self`, without a window: a row of the query stream has a position, and no place among the others.

    Raises:
        WorkbenchError: a window, or streams of different widths.
    """

    def __init__(
        self,
        stream: Word,
        query: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        if sizes[stream] != sizes[query]:
            raise WorkbenchError(
                f"{stream} and {query} go through the same weights, so their hidden_size must be equal; found "
                f"{sizes[stream]} and {sizes[query]}"
            )
        block = LayerOptions(num_heads, **options)
        if block.window is not None:
            raise WorkbenchError(f"window = {block.window}: rows of {query!r} have no place in the text; leave it out")
        self.stream, self.query = stream, query
        self.reads = self.changes = (stream, query)
        self.attention = AttentionBlock(sizes[stream], block)
        self.feed_forward = FeedForwardBlock(sizes[stream], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        present = (self.stream, self.query) if self.query in hidden else (self.stream,)
        content = hidden[self.stream]
        rows = torch.cat([hidden[name] for name in present])
        keys = content if len(present) > 1 else None
        rows = self.feed_forward(self.attention(rows, context, present, keys, (self.stream,)), context)
        parts = rows.split([len(hidden[name]) for name in present])
        return {**hidden, **dict(zip(present, parts, strict=True))}
