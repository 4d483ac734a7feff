"""Token embeddings of three neighbours (MobileBERT, Sun et al., arXiv:2004.02984, section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Epsilon, Size, SizeOrZero
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.norms import NormKind


class TrigramEmbedding(TokenEmbedding):
    """Token embedding of MobileBERT (arXiv:2004.02984). It is dropout(norm(W [t_{i+1} ; t_i ; t_{i-1}] + c + position +
    segment)) with the narrow vectors t of the tokens, and 0 beyond the ends of a text. So each row knows the next
    token, and no text can be read from left to right.

    Args:
        vocab_size: rows of the table (given: the tokenizer's size).
        hidden_size: width of the output rows, and of the tables of positions and segments.
        token_size: width of the table of tokens.
        max_positions, token_types, norm, norm_eps: as of the embedding `token`; here a text has positions.

    Raises:
        WorkbenchError: in a forward: the text is read from left to right (its `rank` rises).
    """

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        token_size: Size = 128,
        max_positions: Count = 512,
        token_types: SizeOrZero = 2,
        dropout: Dropout = 0.0,
        norm: NormKind | None = "affine",
        norm_eps: Epsilon = 1e-12,
    ) -> None:
        super().__init__(hidden_size, vocab_size, max_positions, token_types, dropout, norm, norm_eps)
        self.token = nn.Embedding(vocab_size, token_size)
        self.trigram = nn.Linear(3 * token_size, hidden_size)

    def words(self, fields: dict[str, Tensor]) -> Tensor:
        """The vectors of each token and its two neighbours, in one [rows, hidden_size]."""
        own, places = self.token(fields["input_ids"]), fields["position_ids"]
        follows = (places[1:] == places[:-1] + 1)[:, None]  # elsewhere another text begins
        if "rank" in fields:
            self._check_rank(fields["rank"], follows[:, 0])
        nothing = own[:1] * 0
        later = torch.cat([torch.where(follows, own[1:], 0), nothing])
        earlier = torch.cat([nothing, torch.where(follows, own[:-1], 0)])
        vectors: Tensor = self.trigram(torch.cat([later, own, earlier], -1))
        return vectors

    def _check_rank(self, rank: Tensor, follows: Tensor) -> None:
        """Only a CPU is asked: on another device the check would wait."""
        if rank.device.type == "cpu" and bool((follows & (rank[1:] > rank[:-1])).any()):
            raise WorkbenchError(
                "the text is read from left to right (its rank rises), and the embedding trigram shows each row the "
                "next token: use the embedding token, or a builder with visibility: bidirectional"
            )
