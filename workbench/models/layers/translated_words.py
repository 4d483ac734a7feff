"""Words as attention over those of a translation: the input of word recovery (Unicoder, Huang et al., EMNLP 2019,
arXiv:1909.00964, section 3.2).

    A_ij = softmax over j of W [s_i ; t_j ; s_i * t_j],   rows = sum over j of A_ij t_j

What W s_i adds is the same for all j and cancels out. So the scores are products (w * s_i + v) . t_j of one head of
attention, here scaled as usual, with vectors w and v.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Word
from workbench.models.attention.call import attend
from workbench.models.context import Context


class TranslatedWordsLayer(nn.Module):
    """Rows of `stream` become attention over the rows of `to`, with their positions and a norm (Unicoder, Huang et al.,
    arXiv:1909.00964, section 3.2). It is the first layer of a stack. Without rows of `to` in the batch it does nothing.

    Args:
        stream: the words that are replaced.
        to: their translation; of one hidden size.
        max_positions: rows of the table of positions.

    Raises:
        WorkbenchError: streams of two hidden sizes.
    """

    def __init__(self, stream: Word, to: Word, sizes: dict[str, int], max_positions: Count = 512) -> None:
        super().__init__()
        size = sizes[stream]
        if sizes[to] != size:
            raise WorkbenchError(f"{stream} and {to} have the hidden sizes {size} and {sizes[to]}; give both the same")
        self.stream, self.source = stream, to
        self.reads, self.changes = (stream, to), (stream,)
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.position = nn.Embedding(max_positions, size)
        self.norm = nn.LayerNorm(size, eps=1e-12)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden or self.source not in hidden:
            return hidden
        query, words = hidden[self.stream] * self.weight + self.bias, hidden[self.source]
        queries, keys = context.layout(self.stream), context.layout(self.source)
        if context.keeps("keys") or context.keeps("rows"):  # the words are their own keys and values
            words, keys = context.recall((self.source,), words)
        key, label = words[:, None], f"{context.kind}({self.stream} to {self.source})"
        found, _ = attend(query[:, None], key, key, queries, keys, label=label)
        rows = found[:, 0] + self.position(queries.positions)
        return {**hidden, self.stream: self.norm(rows)}
