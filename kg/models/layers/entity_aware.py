"""LUKE's layer: words and entities as one sequence, with queries that go by what they look at.

Yamada et al., "LUKE: Deep Contextualized Entity Representations with Entity-aware Self-attention", EMNLP 2020 (arXiv
2010.01057), section 3.2. With x_i the rows of words and entities and one matrix K of keys for all,

    score[i, j] = K x_j . Q x_i      / sqrt(size)      both are words
                  K x_j . Q_w2e x_i  / sqrt(size)      i is a word, j an entity
                  K x_j . Q_e2w x_i  / sqrt(size)      i is an entity, j a word
                  K x_j . Q_e2e x_i  / sqrt(size)      both are entities

Each row has two queries then, one for words and one for entities. They stand side by side in one of twice the width,
and keys stand in the half of their own kind, with zeros in the other: one product is each pair's own, so that every
kernel and every visibility works. Who has no entities pays nothing for them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from annotated_types import Len
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.attention.key_values import KeyValues
from workbench.models.blocks import AttentionBlock, LayerOptions, MultiHeadAttention
from workbench.models.layers.joint import JointLayer
from workbench.models.layout import Layout
from workbench.models.rotary import rotate
from workbench.models.tensor_cut import TensorCuts

Names = tuple[str, ...]


class EntityAwareLayer(JointLayer):
    """Entity-aware self-attention of LUKE (Yamada et al., arXiv:2010.01057) over words and entities with equal hidden
    sizes. It has four query matrices: from a word or an entity, to a word or an entity.

    Its weights have the names of a layer `joint`, or of `self` on the words alone, and those of the other queries
    next to them: a plain text model loads into it.

    Args:
        streams: the stream of the words and that of the entities.
        sizes: hidden size of every stream (given by the network).
        num_heads: attention heads.
        options: those of every layer; a score bias must not look at queries, of which there are several.
    """

    def __init__(
        self,
        streams: Annotated[list[Word], Len(2, 2)],
        sizes: dict[str, int],
        num_heads: Heads,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__(streams, sizes, num_heads, **options)

    def attending(self, size: int, options: LayerOptions) -> AttentionBlock:
        return AttentionBlock(size, options, kind=partial(EntityAwareAttention, entities=self.streams[1]))


class EntityAwareAttention(MultiHeadAttention):
    """Attention of rows of which some are those of `entities`, a stream.

    Raises:
        WorkbenchError: the score bias looks at queries.
    """

    def __init__(self, hidden_size: int, options: LayerOptions, *, entities: str, key_size: int | None = None) -> None:
        super().__init__(hidden_size, options, key_size=key_size)
        if self.score_bias is not None and not self.score_bias.by_fields:
            raise WorkbenchError(
                f"score_bias {type(self.score_bias).__name__} looks at queries, of which a row of this layer has "
                f"several; "
                "allowed: one that goes by places and fields (buckets, alibi), or none"
            )
        self.entities = entities
        self.scale = self.head_size**-0.5 if self.scale is None else self.scale
        inner, bias = self.num_heads * self.head_size, self.qkv.bias is not None
        self.w2e_query, self.e2w_query, self.e2e_query = (nn.Linear(hidden_size, inner, bias=bias) for _ in range(3))

    def tensor_cuts(self) -> TensorCuts:
        cuts = super().tensor_cuts()
        queries = dict.fromkeys(("w2e_query", "e2w_query", "e2e_query"), 1)
        return replace(cuts, columns={**cuts.columns, **queries})

    @torch.no_grad()
    def fill_in(self, copied: set[str]) -> None:
        """Queries that a source lacks begin as its only ones, as in the released code's fine-tuning."""
        for kind in ("w2e_query", "e2w_query", "e2e_query"):
            for name in {"weight", "bias"} & {n.removeprefix("qkv.") for n in copied}:
                if f"{kind}.{name}" not in copied:
                    own = getattr(self.qkv, name)[: self.num_heads * self.head_size]
                    getattr(getattr(self, kind), name).copy_(own)

    def faced(
        self, q: Tensor, keys: KeyValues, query_rows: Tensor, queries: Layout, names: tuple[Names, Names]
    ) -> tuple[Tensor, KeyValues]:
        """Two queries a row, side by side, and keys in the half of their kind; without entities all as it was."""
        if self.entities not in names[1]:
            return q, keys
        own, known = self._words(names[0], queries, q), self._words(names[1], keys.layout, keys.keys)
        words, entities = query_rows[:own], query_rows[own:]
        of_words = torch.cat([q[:own], self._queries(self.w2e_query, words, queries, slice(0, own))], -1)
        at = slice(own, None)
        of_entities = [self._queries(query, entities, queries, at) for query in (self.e2w_query, self.e2e_query)]
        size = self.head_size
        halves = F.pad(keys.keys[:known], (0, size)), F.pad(keys.keys[known:], (size, 0))
        return torch.cat([of_words, torch.cat(of_entities, -1)]), keys._replace(keys=torch.cat(halves))

    def _words(self, names: Names, layout: Layout, rows: Tensor) -> int:
        """How many of the rows are no entities', which come last; what an adapter puts in front counts as words."""
        if names[-1] != self.entities:
            return len(rows)
        return len(rows) - layout.streams[-1].rows if len(layout.streams) > 1 else 0

    def _queries(self, query: nn.Linear, rows: Tensor, layout: Layout, at: slice) -> Tensor:
        """[rows, heads, size] of the rows `at` of a layout."""
        made: Tensor = self.query_norm(query(rows).view(-1, self.num_heads, self.head_size))
        if self.rotary is None:
            return made
        cos, sin = layout.turns(self.head_size, made.dtype, self.rotary)
        return rotate(made, (cos[at], sin[at]))
