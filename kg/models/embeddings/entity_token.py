"""LUKE's embedding of entity tokens: entity + where it is mentioned + type.

Yamada et al., "LUKE", EMNLP 2020 (arXiv 2010.01057), section 3.1. The table of a large entity vocabulary is of low
rank: with b a row of B [entities, size of the table], U a matrix, and w_p learned vectors of positions,

    e = norm(U b + mean of w_p over the positions p of the mention + type)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kg.sequences.entity_vocabulary import EntityVocabulary
from workbench.core.options.bounds import Count, Dropout, Epsilon, Location, Size, SizeOrZero
from workbench.models.dropout import dropout
from workbench.sequences.entities import Entities
from workbench.sequences.sequence_checks import check_limits, limit_of_types


class EntityTokenEmbedding(nn.Module):
    """Entity embedding of LUKE (Yamada et al., arXiv:2010.01057). It is dropout(norm(entity + mean of the positions of
    its mention + type)), for the rows that the transform `kg.entity_tokens` makes.

    Args:
        vocabulary: file of `workbench prepare entity-vocabulary`, or the number of rows of the table.
        hidden_size: width of the rows that come out.
        embedding_size: width of the table; where it is another one, a linear map to `hidden_size` follows.
        max_positions: rows of the table of positions, which is not that of the words.
        token_types: rows of the table of types; 0 leaves it out. With 1, as in the released code, all have that row,
            entities of a second segment too.
    """

    def __init__(
        self,
        vocabulary: Location | Count,
        hidden_size: Size,
        embedding_size: Size = 256,
        max_positions: Count = 512,
        token_types: SizeOrZero = 1,
        dropout: Dropout = 0.1,
        norm_eps: Epsilon = 1e-12,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        rows = vocabulary if isinstance(vocabulary, int) else len(EntityVocabulary.open(vocabulary))
        self.hidden_size, self.max_positions, self.dropout = hidden_size, max_positions, dropout
        self.token = nn.Embedding(rows, embedding_size)
        self.project = nn.Linear(embedding_size, hidden_size, bias=False) if embedding_size != hidden_size else None
        self.position = nn.Embedding(max_positions, hidden_size)
        self.token_type = nn.Embedding(token_types, hidden_size) if token_types else None
        self.norm = nn.LayerNorm(hidden_size, eps=norm_eps)
        types = limit_of_types(token_types)
        self.limits = {"entity_ids": rows, "last_position_ids": max_positions, "token_type_ids": types}

    def known_entities(self) -> Entities | None:
        """The ids of its rows, in order; None if the vocabulary is a number."""
        return None if isinstance(self.vocabulary, int) else EntityVocabulary.open(self.vocabulary).listed()

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`entity_ids`, `position_ids` and `last_position_ids` (of the mention's first and last token),
        `token_type_ids`, each [rows] -> [rows, hidden_size].

        Raises:
            WorkbenchError: a number is beyond its table.
        """
        if fields["entity_ids"].device.type == "cpu":
            check_limits(fields, self.limits, "a sequence")
        states = self.token(fields["entity_ids"])
        states = states if self.project is None else self.project(states)
        states = states + self._places(fields["position_ids"], fields["last_position_ids"])
        if self.token_type is not None:
            types = (
                fields["token_type_ids"] if self.limits["token_type_ids"] else torch.zeros_like(fields["entity_ids"])
            )
            states = states + self.token_type(types)
        return dropout(self.norm(states), self.dropout, self.training)

    def _places(self, first: Tensor, last: Tensor) -> Tensor:
        """The mean of the positions first .. last of each row [rows, hidden_size].

        A product of shares and the table: the number of tokens of mentions would have to be waited for.
        """
        positions = torch.arange(self.max_positions, device=first.device)
        inside = ((positions >= first[:, None]) & (positions <= last[:, None])).to(self.position.weight.dtype)
        mean: Tensor = (inside / (last - first + 1)[:, None]) @ self.position.weight
        return mean
