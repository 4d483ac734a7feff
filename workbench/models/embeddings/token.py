"""Token embeddings (BERT, arXiv:1810.04805): word + position + segment, norm, dropout."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.blocks import NormKind, make_norm
from workbench.models.dropout import dropout
from workbench.options.bounds import Count, Dropout, Epsilon, Size, SizeOrZero


class Token(nn.Module):
    """dropout(norm(token + position + segment)) of the rows of a text stream.

    Args:
        vocab_size: rows of the table (given: the tokenizer's size).
        hidden_size: width of the rows that come out.
        embedding_size: width of the tables; where it is another one, a linear map to `hidden_size` follows (ALBERT,
            arXiv:1909.11942, section 3.1; ELECTRA).
        max_positions: rows of the learned position table; null leaves it out (rotary positions).
        token_types: rows of the segment table; 0 leaves it out.
        embedding_norm: whether a norm follows (pre-norm stacks often have none).
    """

    by_token = ("token.weight",)
    """Parameters that have a row for each token of the vocabulary."""

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        max_positions: Count | None = 512,
        token_types: SizeOrZero = 2,
        dropout: Dropout = 0.1,
        embedding_norm: bool = True,
        norm: NormKind = "layer",
        norm_eps: Epsilon = 1e-12,
        embedding_size: Size | None = None,
    ) -> None:
        super().__init__()
        size = embedding_size or hidden_size
        self.hidden_size = hidden_size
        self.max_positions = max_positions
        self.token = nn.Embedding(vocab_size, size)
        self.position = nn.Embedding(max_positions, size) if max_positions else None
        self.token_type = nn.Embedding(token_types, size) if token_types else None
        self.norm = make_norm(norm, size, norm_eps) if embedding_norm else nn.Identity()
        self.dropout = dropout
        self.project = nn.Linear(size, hidden_size) if size != hidden_size else None

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """Fields input_ids, position_ids, token_type_ids, each [rows] -> [rows, hidden_size]."""
        states = self.token(fields["input_ids"])
        if self.position is not None and self.max_positions is not None:
            positions = fields["position_ids"]
            if not positions.is_cuda and positions.numel() and int(positions.max()) >= self.max_positions:
                raise WorkbenchError(
                    f"a sequence has position {int(positions.max())}, but max_positions = {self.max_positions}: "
                    "shorten the builder's max_length or enlarge max_positions"
                )
            states = states + self.position(positions)
        if self.token_type is not None:
            types = fields["token_type_ids"]
            if not types.is_cuda and types.numel() and int(types.max()) >= self.token_type.num_embeddings:
                raise WorkbenchError(
                    f"a sequence has segment {int(types.max())}, but token_types = {self.token_type.num_embeddings}: "
                    "enlarge token_types, set it to 0, or choose a builder of one segment"
                )
            states = states + self.token_type(types)
        states = dropout(self.norm(states), self.dropout, self.training)
        return states if self.project is None else self.project(states)
