"""Token embeddings in which some rows stand for entities (E-BERT, Poerner et al., arXiv 1911.03681, section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.vectors.mapping import note_space
from workbench.core.options.bounds import Count, Dropout, Epsilon, Location, Name, Seed, Size, SizeOrZero
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.norms import NormKind
from workbench.sequences.entities import Entities

FIELD = "entity_ids"


class WordOrEntityEmbedding(TokenEmbedding):
    """Token embedding of E-BERT (Poerner et al., arXiv:1911.03681, section 3.2). It is `token`, but a row with
    `entity_ids` r > 0 has vector r - 1 of the file instead of a word's vector.

    The vectors are those of the entities in the space of the words (`prepare vectors --map-to`), and refused with other
    words than these; they stay as they are, and in their file (`kg.entity_table`). The transform `kg.entity_words`
    makes
    such rows; where nobody does, this is `token`. Its weights have the same names, so that it starts from a network
    with that embedding.

    Args:
        path: file of the vectors, of the size `hidden_size`.
        hidden_size, vocab_size, max_positions, token_types, dropout, norm, norm_eps: as for `token`.
        shuffled, permuted: files of vectors of the shuffled and the permuted graph, for the controls of these names.
        control: the recipe's, as for `kg.entity_table`.
        seed: of random vectors.
    """

    controls = EntityTableEmbedding.controls
    unaffected_by = EntityTableEmbedding.unaffected_by

    def __init__(
        self,
        path: Location | Tensor,
        hidden_size: Size,
        vocab_size: Count,
        max_positions: Count | None = 512,
        token_types: SizeOrZero = 2,
        dropout: Dropout = 0.1,
        norm: NormKind | None = "layer",
        norm_eps: Epsilon = 1e-12,
        shuffled: Location | None = None,
        control: Name | None = None,
        seed: Seed = 0,
        permuted: Location | None = None,
    ) -> None:
        super().__init__(hidden_size, vocab_size, max_positions, token_types, dropout, norm, norm_eps)
        if isinstance(path, str):
            note_space(path)
        self.entities = EntityTableEmbedding(path, False, hidden_size, shuffled, control, seed, permuted)

    def known_entities(self) -> Entities | None:
        return self.entities.known_entities()

    def words(self, fields: dict[str, Tensor]) -> Tensor:
        """As `TokenEmbedding`, the rows of entities with theirs."""
        words = super().words(fields)
        if FIELD not in fields:
            return words
        entities = self.entities({FIELD: fields[FIELD]})
        return torch.where((fields[FIELD] > 0).unsqueeze(-1), entities.to(words), words)
