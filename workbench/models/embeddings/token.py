"""Token embeddings (BERT, arXiv:1810.04805): word + position + segment (+ language, task, ...), norm, dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Epsilon, Size, SizeOrZero, SomeShare, Word
from workbench.models.dropout import dropout
from workbench.models.initialisation import initialise
from workbench.models.norms import NormKind, make_norm
from workbench.sequences.sequence_checks import check_limits, limit_of_types


class TokenEmbedding(nn.Module):
    """Token embedding of BERT (arXiv:1810.04805). It is dropout(norm(token + position + segment + extra)).

    Args:
        vocab_size: rows of the table (given: the tokenizer's size).
        hidden_size: width of the output rows.
        embedding_size: width of the tables; if it is another one, a linear layer to `hidden_size` follows (ALBERT,
            arXiv:1909.11942, section 3.1; ELECTRA).
        max_positions: rows of the learned position table; null leaves it out (rotary positions).
        token_types: rows of the segment table; 0 leaves it out, and with 1 all segments have the same row
            (RoBERTa's pairs).
        extra: further integer fields of the stream, which builders or transforms write, with the number of rows of each
            table: `{language_ids: 15}` (XLM, arXiv:1901.07291).
        norm: the norm that follows; null for none (pre-norm stacks often have none).
        norm_bias: whether that norm has a bias.
        init_range: standard deviation of the fresh table of tokens, where it is not the network's (T5: 1, which an
            optimizer with updates relative to the weights needs).
        scaled: whether tokens are multiplied by the square root of the tables' width (arXiv:1706.03762, section 3.4).
    """

    by_token: tuple[str, ...] = ("token.weight",)
    """Parameters that have a row for each token of the vocabulary."""

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        max_positions: Count | None = 512,
        token_types: SizeOrZero = 2,
        dropout: Dropout = 0.1,
        norm: NormKind | None = "layer",
        norm_eps: Epsilon = 1e-12,
        embedding_size: Size | None = None,
        extra: dict[Word, Count] | None = None,
        norm_bias: bool = True,
        init_range: SomeShare | None = None,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.init_range = init_range
        own = {"position_ids": max_positions or 0, "token_type_ids": limit_of_types(token_types)}
        for name in {"input_ids", *own} & (extra or {}).keys():
            raise WorkbenchError(f"extra: {name!r} has a table already; allowed: fields that others write")
        size = embedding_size or hidden_size
        self.hidden_size = hidden_size
        self.factor = size**0.5 if scaled else 1.0
        self.max_positions = max_positions
        self.token = nn.Embedding(vocab_size, size)
        self.position = nn.Embedding(max_positions, size) if max_positions else None
        self.token_type = nn.Embedding(token_types, size) if token_types else None
        self.extra = nn.ModuleDict({name: nn.Embedding(rows, size) for name, rows in (extra or {}).items()})
        self.limits = {"input_ids": vocab_size, **own, **(extra or {})}
        self.norm = make_norm(norm, size, norm_eps, norm_bias) if norm else nn.Identity()
        self.dropout = dropout
        self.project = nn.Linear(size, hidden_size) if size != hidden_size else None

    def initialise(self, scale: float) -> None:
        for child in self.children():
            initialise(child, scale)
        if self.init_range is not None:
            nn.init.normal_(self.token.weight, std=self.init_range)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """Fields input_ids, position_ids, token_type_ids, and the extra ones, each [rows] -> [rows, hidden_size].

        Raises:
            WorkbenchError: the stream lacks a field, or a number is beyond its table.
        """
        if fields["input_ids"].device.type == "cpu":
            check_limits(fields, self.limits, "a sequence")
        states = self.words(fields)
        tables = {"position_ids": self.position, "token_type_ids": self.token_type, **dict(self.extra.items())}
        for name, table in tables.items():
            if table is not None:
                states = states + table(self._numbers(fields, name))
        states = dropout(self.norm(states), self.dropout, self.training)
        return states if self.project is None else self.project(states)

    def words(self, fields: dict[str, Tensor]) -> Tensor:
        """The vectors of the words alone [rows, width of the tables]."""
        words: Tensor = self.token(fields["input_ids"])
        return words if self.factor == 1.0 else words * self.factor

    def _numbers(self, fields: dict[str, Tensor], name: str) -> Tensor:
        if name == "token_type_ids" and not self.limits[name]:
            return torch.zeros_like(fields["input_ids"])
        if name not in fields:
            raise WorkbenchError(
                f"the embedding has a table for {name!r}, which the sequences lack (they have {', '.join(fields)}): "
                "add the builder or the transform that writes it (`workbench components transform`), or remove it "
                "from the embedding"
            )
        return fields[name]
