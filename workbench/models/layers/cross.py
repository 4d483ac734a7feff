"""One-way cross-attention: one stream reads another (Vaswani et al., arXiv:1706.03762; ALBEF, arXiv:2107.07651)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class CrossLayer(nn.Module):
    """Transformer decoder layer: self-attention on `stream`, cross-attention from `stream` to `to`, feed-forward
    (Vaswani et al., arXiv:1706.03762). `to` is unchanged.

    `to` may be several streams of one hidden size, which are read as one sequence (UniVL's decoder).

    The rows of a stream `query` pass the same weights, in one sequence with those of `stream`; the visibility integers
    decide which rows see each other (the n-stream attention of ProphetNet, arXiv:2001.04063, section 2.2).

    Options as for `self`; `score_bias` and `window` apply to the self-attention, since the places of two streams are
    unrelated.

    Args:
        self_attention: whether there is self-attention.
        key_norm: in pre-norm layers, a norm before `to` is read; none where `to` ends with a `norm` layer (T5).
        query: a second stream of the decoder.

    Raises:
        WorkbenchError: a score bias or window without self-attention, or streams of several hidden sizes that are read
            as one sequence.
    """

    def __init__(
        self,
        stream: Word,
        to: Word | Annotated[list[Word], MinLen(1)],
        sizes: dict[str, int],
        num_heads: Heads,
        self_attention: bool = True,
        key_norm: bool = True,
        query: Word | None = None,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        block = LayerOptions(num_heads, **options)
        across = replace(block, score_bias=None, window=None)
        if not self_attention and block != across:
            raise WorkbenchError(
                "score_bias and window apply to the self-attention, and self_attention is false; leave them out"
            )
        self.stream, self.sources = stream, (to,) if isinstance(to, str) else tuple(to)
        self.changes = (stream,) if query is None else (stream, query)
        for joined in (self.sources, self.changes):
            found = {name: sizes[name] for name in joined}
            if len(set(found.values())) != 1:
                raise WorkbenchError(f"streams that are read as one sequence have one hidden size; found {found}")
        self.reads = (*self.changes, *self.sources)
        self.self_attention = AttentionBlock(sizes[stream], block) if self_attention else None
        self.cross_attention = AttentionBlock(sizes[stream], across, sizes[self.sources[0]], key_norm=key_norm)
        self.feed_forward = FeedForwardBlock(sizes[stream], block)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        own = tuple(name for name in self.changes if name in hidden)
        rows = _joined(hidden, own)
        if self.self_attention is not None:
            rows = self.self_attention(rows, context, own)
        present = tuple(name for name in self.sources if name in hidden)
        if present:
            rows = self.cross_attention(rows, context, own, _joined(hidden, present), present)
        parts = self.feed_forward(rows, context).split([len(hidden[name]) for name in own])
        return {**hidden, **dict(zip(own, parts, strict=True))}


def _joined(hidden: dict[str, Tensor], streams: tuple[str, ...]) -> Tensor:
    return hidden[streams[0]] if len(streams) == 1 else torch.cat([hidden[name] for name in streams])
