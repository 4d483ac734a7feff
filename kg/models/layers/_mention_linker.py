"""The linker inside KnowBERT's component (`kg.kar`): mentions as vectors, and scores of their candidates.

Peters et al., EMNLP 2019 (arXiv:1909.04164), equations 1 to 3.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context


class MentionLinker(nn.Module):
    """What is trained where the linker alone is.

    Args:
        width, size: of the word pieces and of the entities.
        block: options of the Transformer layer over the mentions.
        scorer_size: width of the MLP that joins a candidate's prior and its product with the mention.
    """

    def __init__(self, width: int, size: int, block: LayerOptions, scorer_size: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, size, bias=block.bias)
        self.pool = nn.Linear(size, 1, bias=False)
        self.norm = block.norm_of(size)
        self.attention = AttentionBlock(size, block)
        self.feed_forward = FeedForwardBlock(size, block)
        self.candidate_norm = block.norm_of(size)
        self.scorer_inner = nn.Linear(2, scorer_size, bias=block.bias)
        self.scorer_outer = nn.Linear(scorer_size, 1, bias=block.bias)

    def mentions(self, pieces: Tensor, context: Context, stream: str) -> Tensor:
        """The states of the mentions [mentions, size], before they know their entities."""
        fields, known = context.fields(stream), context.batch.streams[stream].known
        rows = int(_lengths(known("token"), known("last")).sum())
        pooled = span_pooling(pieces, self.pool(pieces).squeeze(-1), fields["token"], fields["last"], rows)
        mentions: Tensor = self.feed_forward(self.attention(self.norm(pooled), context, (stream,)), context)
        return mentions

    def scores(self, mentions: Tensor, vectors: Tensor, fields: dict[str, Tensor]) -> Tensor:
        """The score of each candidate [candidates], float32.

        Args:
            mentions: [mentions, size].
            vectors: [candidates, size].
            fields: of the candidates: `mention` and `prior`.
        """
        products = (mentions[fields["mention"]] * vectors).sum(-1) / math.sqrt(vectors.shape[-1])
        given = torch.stack([fields["prior"].to(products.dtype), products], -1)
        scores: Tensor = self.scorer_outer(F.relu(self.scorer_inner(given))).squeeze(-1)
        return scores.float()


def _lengths(first: Tensor, last: Tensor) -> Tensor:
    """The number of rows of each span [spans]; one if its last row was cut away."""
    return (last - first).clamp_min(0) + 1


def span_pooling(rows: Tensor, scores: Tensor, first: Tensor, last: Tensor, count: int) -> Tensor:
    """The mean of the rows of each span, by the softmax of their scores (Lee et al., arXiv:1707.07045, section 3.1).

    Args:
        rows: [rows, size].
        scores: [rows].
        first, last: [spans], the rows at which each begins and ends; it is its first alone where the last one is gone.
        count: how many rows the spans have together.

    Returns:
        [spans, size]
    """
    lengths = _lengths(first, last)
    span = torch.repeat_interleave(lengths, output_size=count)
    begins = lengths.cumsum(0) - lengths
    row = first[span] + torch.arange(len(span), device=first.device) - begins[span]
    found = scores[row].float()
    highest = found.detach().new_full((len(first),), -torch.inf).scatter_reduce(0, span, found.detach(), "amax")
    weights = (found - highest[span]).exp()
    total = weights.new_zeros(len(first)).index_add(0, span, weights)
    shares = (weights / total[span]).to(rows.dtype)
    return rows.new_zeros(len(first), rows.shape[-1]).index_add(0, span, shares.unsqueeze(-1) * rows[row])
