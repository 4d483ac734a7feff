"""Token embeddings that know what a word may mean (SenseBERT, arXiv:1908.05646, section 3.3, equation 8).

    v = (W + S M) x + p

W is the table of tokens, S a table of supersenses, and M a matrix of 0 and 1 that says which supersenses each token may
have. The objective `kg.supersense` predicts supersenses with the same S, as masked tokens are predicted with W.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kg.graph.shuffle import FALSE_FACTS
from kg.lexicons.supersense_table import SupersenseTable, read_supersenses
from workbench.core.options.bounds import Count, Dropout, Epsilon, Location, Name, Seed, Size, SizeOrZero
from workbench.models.embeddings.token import TokenEmbedding
from workbench.text.tokenizer import Tokenizer


class SenseTokenEmbedding(TokenEmbedding):
    """Token embedding of SenseBERT (arXiv:1908.05646, equation 8). It is `token` plus the vectors of all supersenses of
    the word.

    Args:
        vocab_size: rows of the table (given: the tokenizer's size).
        hidden_size: width of the rows that come out.
        senses: file of `workbench prepare supersenses`, of the same tokenizer.
        max_positions: rows of the table of positions.
        token_types: rows of the segment table; 0 leaves it out.
        norm_eps: of the norm that follows.
        control: the recipe's; under `no-kg` no word has a supersense, under `shuffled-kg` each has those of another,
            under `permuted-kg` those of any.
        seed: of that exchange.
    """

    controls = ("no-kg", *FALSE_FACTS)

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        senses: Location | SupersenseTable,
        tokenizer: Tokenizer | None = None,
        max_positions: Count | None = 512,
        token_types: SizeOrZero = 2,
        dropout: Dropout = 0.1,
        norm_eps: Epsilon = 1e-12,
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(hidden_size, vocab_size, max_positions, token_types, dropout, norm_eps=norm_eps)
        if not isinstance(senses, SupersenseTable):
            assert tokenizer is not None
            senses = read_supersenses(senses, tokenizer)
        self.token = SenseTable(vocab_size, hidden_size, torch.from_numpy(senses.under(control, seed).allowed))

    @property
    def senses(self) -> nn.Embedding:
        """S: a vector for each supersense [supersenses, hidden_size]."""
        assert isinstance(self.token, SenseTable)
        return self.token.senses

    @property
    def allowed(self) -> Tensor:
        """M: which supersenses each token may have, bool [tokens, supersenses]."""
        assert isinstance(self.token, SenseTable)
        return self.token.allowed


class SenseTable(nn.Embedding):
    """W + S M: a table of tokens, whose rows have those of their supersenses added when they are looked up.

    Args:
        allowed: bool [tokens, supersenses]. It is no part of a checkpoint; a run names its file.
    """

    def __init__(self, vocab_size: int, hidden_size: int, allowed: Tensor) -> None:
        super().__init__(vocab_size, hidden_size)
        self.senses = nn.Embedding(allowed.shape[1], hidden_size)
        self.allowed: Tensor
        self.register_buffer("allowed", allowed, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Ids [rows] -> [rows, hidden_size]."""
        return super().forward(input) + self.allowed[input].to(self.weight.dtype) @ self.senses.weight
