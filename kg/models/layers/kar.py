"""KnowBERT's component for knowledge attention and recontextualisation (KAR), one for each knowledge base.

Peters et al., "Knowledge Enhanced Contextual Word Representations", EMNLP 2019 (arXiv:1909.04164), section 3.2, with
the norms and the scale of the released code (allenai/kb), of which the paper says nothing. With H the states of the
word pieces, e_mk the vector of candidate k for mention m, and p_mk its prior,

    P    = H W_1 + b_1                                                                                             (1)
    s_m  = norm(sum over the pieces t of m of softmax_t(w . P_t) P_t)                       self-attentive span pooling
    S^e  = Transformer layer(S)                                     the mentions of a document attend to each other (2)
    psi  = MLP(p_mk, s_m^e . norm(e_mk) / sqrt(size))                                            the linker's scores (3)
    e~_m = sum over k with psi_mk >= threshold of softmax_k(psi_mk) norm(e_mk), the vector NULL where there is none  (6)
    S'   = norm(S^e + E~)                                                                                          (7)
    P'   = Transformer layer(P; its attention reads S')                                                            (8)
    H'   = norm(H + P' W_2 + b_2)                                                                                  (9)

W_2 begins as the pseudo-inverse of W_1, so that entities and word pieces are aligned. Where the pieces read a document
without mentions, the attention of (8) is zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from kg.models.layers._mention_linker import MentionLinker
from workbench.core.options.bounds import Figure, Heads, Size, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context
from workbench.models.initialisation import initialise


class KarLayer(nn.Module):
    """Knowledge attention and recontextualisation of KnowBERT (KAR; Peters et al., arXiv:1909.04164), one layer for
    each knowledge base. It links the mentions of a text to their candidates, and every word piece attends to the linked
    mentions.

    Heads find the linker's scores of the candidates [candidates] as `scores` among the taps, under the name of the
    candidates' stream. Without the streams of the knowledge base the text passes through.

    Args:
        stream: the stream of the word pieces, which alone is changed.
        candidates: the stream of candidates, whose embedding is the table of the knowledge base.
        mentions: the stream of mentions (the transform `kg.candidates` makes both).
        sizes: hidden size of every stream (given by the network).
        num_heads: attention heads, of the mentions and of the word pieces, in the candidates' width.
        threshold: candidates with a lesser score are no part of a mention; None: all are.
        scorer_size: width of the linker's MLP.
        inverted: make W_2 the inverse of W_1 again after every update; for runs that train the `linker` alone.
        options: those of every layer; `score_bias` and `window` are of the attention among the mentions.
    """

    # a mention of one token leaves nothing to pool, and a text with one mention nothing to choose from
    reached_by_some = (
        "linker.pool",
        "knowledge_attention.attention.query",
        "knowledge_attention.attention.key_value",
    )

    def __init__(
        self,
        stream: Word,
        candidates: Word,
        mentions: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        threshold: Figure | None = None,
        scorer_size: Size = 100,
        inverted: bool = False,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        self.stream, self.candidates, self.mentions = stream, candidates, mentions
        self.reads, self.changes = (stream, candidates), (stream,)
        self.threshold, self.inverted = threshold, inverted
        width, size = sizes[stream], sizes[candidates]
        block = LayerOptions(num_heads, **options)
        self.linker = MentionLinker(width, size, block, scorer_size)
        self.null = nn.Parameter(torch.zeros(size))
        self.enhanced = block.sublayer(size)
        self.knowledge_attention = AttentionBlock(size, replace(block, score_bias=None, window=None), key_size=size)
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
        there = self.linker.project
        inverse = pseudo_inverse(there.weight)
        self.project_back.weight.copy_(inverse)
        if there.bias is not None:
            self.project_back.bias.copy_(-inverse @ there.bias.float())

    def after_step(self, update: object) -> None:
        """Hears of an update of the weights."""
        if self.inverted:
            self.invert()

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """Text rows [tokens, text size], candidates [candidates, size] -> the text's, which have read the mentions."""
        if self.stream not in hidden or self.mentions not in context.batch.streams:
            return hidden
        text = hidden[self.stream]
        pieces = self.linker.project(self.residual.enter(text))
        mentions = self.linker.mentions(pieces, context, self.mentions)
        known = self.enhanced.leave(mentions, self._linked(mentions, hidden.get(self.candidates), context))
        pieces = self.knowledge_attention(pieces, context, (self.stream,), known, (self.mentions,))
        result = self.project_back(self.feed_forward(pieces, context))
        return {**hidden, self.stream: self.residual.leave(text, result)}

    def _linked(self, mentions: Tensor, candidates: Tensor | None, context: Context) -> Tensor:
        """The weighted entity of each mention [mentions, size]; the linker's scores are left to heads."""
        if candidates is None:
            return self.null.to(mentions.dtype).expand_as(mentions)
        vectors = self.linker.candidate_norm(candidates.to(mentions.dtype))
        fields = context.fields(self.candidates)
        scores = self.linker.scores(mentions, vectors, fields)
        context.taps[self.candidates] = {"scores": scores}
        return self._entities(scores, vectors, fields["mention"], len(mentions))

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


def pseudo_inverse(matrix: Tensor) -> Tensor:
    """That of a matrix [rows, columns], float32 [columns, rows].

    With M of full rank and not more rows than columns it is M^T (M M^T)^-1. The inverse is a Cholesky solve in double
    precision, which a GPU does in a stretch; a singular value decomposition has the host wait many times. What is added
    to the diagonal, 1e-13 of its mean, keeps the solve of a matrix of lower rank from failing; its inverse is large.
    """
    wide = matrix.double() if len(matrix) <= matrix.shape[1] else matrix.double().T
    products = wide @ wide.T
    products.diagonal().add_(products.diagonal().mean() * 1e-13 + torch.finfo(torch.float64).tiny)
    inverse = torch.cholesky_solve(wide, torch.linalg.cholesky_ex(products).L)
    return (inverse.T if len(matrix) <= matrix.shape[1] else inverse).float()
