"""Token embeddings with two positions (GLM, arXiv:2103.10360, section 2.2): in the text, and in a blank of it."""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.core.options.bounds import Count, Dropout, Size, SizeOrZero
from workbench.models.embeddings.token import TokenEmbedding

FIELD = "block_ids"


class BlankTokenEmbedding(TokenEmbedding):
    """Token embedding of GLM with two positions (arXiv:2103.10360, section 2.2). It is `token` plus a table of
    positions in a blank, which count from 1. Rows of the text have position 0.

    The objective `blank_filling` writes these places (`block_ids`). Without it, for example when a text is encoded,
    there is no blank, and all are 0.

    Args:
        vocab_size: rows of the table (given: the tokenizer's size).
        hidden_size: width of the output rows.
        max_positions: rows of the table of positions in the text.
        block_positions: rows of the table of places in a blank: two more than the longest one has tokens.
        token_types: rows of the segment table, as of `token`.
    """

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        max_positions: Count | None = 512,
        block_positions: Count = 512,
        token_types: SizeOrZero = 0,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__(
            hidden_size,
            vocab_size,
            max_positions,
            token_types,
            dropout,
            norm=None,
            extra={FIELD: block_positions},
        )

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """As `TokenEmbedding`; with `block_ids` [rows], or without."""
        return super().forward(fields if FIELD in fields else {**fields, FIELD: torch.zeros_like(fields["input_ids"])})
