"""Token embeddings with gradient-disentangled sharing (DeBERTa v3, He et al., arXiv:2111.09543, section 3.2.2).

    E_D = stop_gradient(E_G) + E_delta

E_G is the generator's table, which the generator alone trains (`tie: {text.token: generator.text.token}`). E_delta is 0
at first and trained by this network.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.options.bounds import Count, Dropout, Epsilon, Size, SizeOrZero
from workbench.models.embeddings.token import TokenEmbedding


class DeltaTokenEmbedding(TokenEmbedding):
    """Token embedding of DeBERTa v3 (arXiv:2111.09543, section 3.2.2): the table of another network, to which no
    gradient flows, and a table of differences that begins at 0. Without a `tie` the first table stays as it was drawn.

    Args:
        vocab_size: rows of both tables (given: the tokenizer's size).
        hidden_size: width of the output rows.
        max_positions: rows of the learned position table; null leaves it out.
        token_types: rows of the segment table, as of `token`.
        norm_eps: that of the norm.
    """

    by_token = ("token.weight", "delta.weight")

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        max_positions: Count | None = 512,
        token_types: SizeOrZero = 0,
        dropout: Dropout = 0.1,
        norm_eps: Epsilon = 1e-12,
    ) -> None:
        super().__init__(hidden_size, vocab_size, max_positions, token_types, dropout, norm_eps=norm_eps)
        self.token.weight.requires_grad_(False)  # this network never trains it; a tie replaces it
        nn.init.normal_(self.token.weight, std=0.02)
        self.delta = nn.Embedding(vocab_size, hidden_size)

    def initialise(self, scale: float) -> None:
        super().initialise(scale)  # which leaves out a table that is not trained
        nn.init.zeros_(self.delta.weight)

    def words(self, fields: dict[str, Tensor]) -> Tensor:
        """The vectors of the words alone [rows, hidden_size]."""
        ids = fields["input_ids"]
        difference: Tensor = self.delta(ids)
        return F.embedding(ids, self.token.weight.detach()) + difference
