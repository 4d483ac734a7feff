"""KnowBERT's component for knowledge attention and recontextualisation (KAR), one for each knowledge base.

Peters et al., "Knowledge Enhanced Contextual Word Representations", EMNLP 2019 (arXiv:1909.04164), section 3.2, with
the norms and the scale of the release (allenai/kb), of which the paper says nothing. With H the states of the word
pieces, e_mk the vector of candidate k for mention m, and p_mk its prior,

    P    = H W_1 + b_1                                                                                             (1)
    s_m  = norm(sum over the pieces t of m of softmax_t(w . P_t) P_t)                       self-attentive span pooling
    S^e  = Transformer layer(S)                                     the mentions of a document attend to each other (2)
    psi  = MLP(p_mk, s_m^e . norm(e_mk) / sqrt(size))                                            the linker's scores (3)
    e~_m = sum over k with psi_mk >= threshold of softmax_k(psi_mk) norm(e_mk), the vector NULL where there is none  (6)
    S'   = norm(S^e + E~)                                                                                          (7)
    P'   = Transformer layer(P; its attention reads S')                                                            (8)
    H'   = norm(H + P' W_2 + b_2)                                                                                  (9)

W_2 begins as the pseudo-inverse of W_1, so that entities and word pieces are aligned. Where the pieces read a document
without mentions, the attention of (8) gives zero.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.models.context import Context
from workbench.models.initialisation import initialise
from workbench.models.sublayers import AttentionBlock, BlockOptions, FeedForwardBlock, Options
from workbench.options.bounds import Figure, Heads, Size, Word


class Kar(nn.Module):
    """Links the mentions of a text to their candidates, and lets every word piece read the linked mentions.

    Heads find the linker's scores of the candidates [candidates] as `scores` among the taps, under the name of the
    candidates' stream. Without the streams of the knowledge base the text passes through.

    Args:
        stream: the stream of the word pieces, which alone is changed.
        candidates: the stream of candidates, whose embedding is the table of the knowledge base.
        mentions: the stream of mentions (the step `kg.candidates` makes both).
        sizes: hidden size of every stream (given by the network).
        num_heads: attention heads, of the mentions and of the word pieces, in the candidates' width.
        threshold: candidates with a lesser score are no part of a mention; None: all are.
        scorer_size: width of the linker's MLP.
        options: those of every layer; `relation` and `window` are of the attention among the mentions.
    """

    def __init__(
        self,
        stream: Word,
        candidates: Word,
        mentions: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        threshold: Figure | None = None,
        scorer_size: Size = 100,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        self.stream, self.candidates, self.mentions = stream, candidates, mentions
        self.reads, self.changes = (stream, candidates), (stream,)
        self.threshold = threshold
        width, size = sizes[stream], sizes[candidates]
        block = Options(num_heads, **options)
        across = replace(block, relation=None, window=None)
        self.project = nn.Linear(width, size, bias=block.bias)
        self.pool = nn.Linear(size, 1, bias=False)
        self.mention_norm = block.norm_of(size)
        self.mention_attention = AttentionBlock(size, block)
        self.mention_feed_forward = FeedForwardBlock(size, block)
        self.candidate_norm = block.norm_of(size)
        self.scorer_inner = nn.Linear(2, scorer_size, bias=block.bias)
        self.scorer_outer = nn.Linear(scorer_size, 1, bias=block.bias)
        self.null = nn.Parameter(torch.zeros(size))
        self.enhanced = block.sublayer(size)
        self.attention = AttentionBlock(size, across, key_size=size)
        self.feed_forward = FeedForwardBlock(size, block)
        self.project_back = nn.Linear(size, width, bias=block.bias)
        self.residual = block.sublayer(width)

    @torch.no_grad()
    def initialise(self, scale: float) -> None:
        """BERT's initialisation, but for the way back to the word pieces."""
        for child in self.children():
            initialise(child, scale)
        nn.init.normal_(self.null, std=scale)
        self.invert()

    @torch.no_grad()
    def invert(self) -> None:
        """Make the way back to the word pieces the inverse of the way to the entities, as near as there is one."""
        inverse = torch.linalg.pinv(self.project.weight)
        self.project_back.weight.copy_(inverse)
        if self.project.bias is not None:
            self.project_back.bias.copy_(-inverse @ self.project.bias)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """Text rows [tokens, text size], candidates [candidates, size] -> the text's, which have read the mentions."""
        if self.stream not in hidden or self.mentions not in context.batch.streams:
            return hidden
        text = hidden[self.stream]
        pieces = self.project(self.residual.enter(text))
        mentions = self._mentions(pieces, context)
        known = self.enhanced.leave(mentions, self._linked(mentions, hidden.get(self.candidates), context))
        pieces = self.attention(pieces, context, (self.stream,), known, (self.mentions,))
        result = self.project_back(self.feed_forward(pieces))
        return {**hidden, self.stream: self.residual.leave(text, result)}

    def _mentions(self, pieces: Tensor, context: Context) -> Tensor:
        """The states of the mentions [mentions, size], before they know their entities."""
        fields = context.fields(self.mentions)
        pooled = span_pooling(pieces, self.pool(pieces).squeeze(-1), fields["token"], fields["last"])
        mentions = self.mention_attention(self.mention_norm(pooled), context, (self.mentions,))
        return self.mention_feed_forward(mentions)

    def _linked(self, mentions: Tensor, candidates: Tensor | None, context: Context) -> Tensor:
        """The weighted entity of each mention [mentions, size]; the linker's scores are left to heads."""
        if candidates is None:
            return self.null.to(mentions.dtype).expand_as(mentions)
        vectors = self.candidate_norm(candidates.to(mentions.dtype))
        fields = context.fields(self.candidates)
        scores = self._scores(mentions, vectors, fields)
        context.taps[self.candidates] = {"scores": scores}
        return self._entities(scores, vectors, fields["mention"], len(mentions))

    def _scores(self, mentions: Tensor, vectors: Tensor, fields: dict[str, Tensor]) -> Tensor:
        """The linker's score of each candidate [candidates], float32."""
        products = (mentions[fields["mention"]] * vectors).sum(-1) / math.sqrt(vectors.shape[-1])
        given = torch.stack([fields["prior"].to(products.dtype), products], -1)
        scores: Tensor = self.scorer_outer(F.relu(self.scorer_inner(given))).squeeze(-1)
        return scores.float()

    def _entities(self, scores: Tensor, vectors: Tensor, mention: Tensor, count: int) -> Tensor:
        """The weighted entity of each mention [mentions, size]."""
        highest = scores.detach().new_full((count,), -torch.inf).scatter_reduce(0, mention, scores.detach(), "amax")
        weights = (scores - highest[mention]).exp()
        if self.threshold is not None:
            weights = torch.where(scores >= self.threshold, weights, 0.0)
        total = weights.new_zeros(count).index_add(0, mention, weights)
        linked = total > 0
        shares = (weights / torch.where(linked, total, 1.0)[mention]).to(vectors.dtype)
        mixed = vectors.new_zeros(count, vectors.shape[-1]).index_add(0, mention, shares.unsqueeze(-1) * vectors)
        return torch.where(linked.unsqueeze(-1), mixed, self.null.to(vectors.dtype))


def span_pooling(rows: Tensor, scores: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The mean of the rows of each span, by the softmax of their scores (Lee et al., arXiv:1707.07045, section 3.1).

    Args:
        rows: [rows, size].
        scores: [rows].
        first, last: [spans], the rows at which each begins and ends; it is its first alone where the last one is gone.

    Returns:
        [spans, size]
    """
    lengths = (last - first).clamp_min(0) + 1
    span = torch.repeat_interleave(torch.arange(len(first), device=first.device), lengths)
    begins = lengths.cumsum(0) - lengths
    row = first[span] + torch.arange(len(span), device=first.device) - begins[span]
    found = scores[row].float()
    highest = found.detach().new_full((len(first),), -torch.inf).scatter_reduce(0, span, found.detach(), "amax")
    weights = (found - highest[span]).exp()
    total = weights.new_zeros(len(first)).index_add(0, span, weights)
    shares = (weights / total[span]).to(rows.dtype)
    return rows.new_zeros(len(first), rows.shape[-1]).index_add(0, span, shares.unsqueeze(-1) * rows[row])
