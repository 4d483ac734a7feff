"""The facts of one entity, decoded on demand: a country is the tail of 100,000 triples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import numpy as np

from kg.graph.strings import StringTable

Direction = Literal["out", "in", "both"]


class Fact(NamedTuple):
    """A triple of an entity: its relation, the entity at the other end, and whether that one is the head."""

    relation: str
    other: str
    incoming: bool


class EntityFacts(Sequence[Fact]):
    """The facts of an entity, the outgoing ones first.

    Args:
        ids, relation_ids: the graph's tables.
        relations, others: rows of each fact, [facts].
        outgoing: how many of them have the entity as their head.
    """

    def __init__(
        self, ids: StringTable, relation_ids: Sequence[str], relations: np.ndarray, others: np.ndarray, outgoing: int
    ) -> None:
        self.ids, self.relation_ids = ids, relation_ids
        self.relations, self.others, self.outgoing = relations, others, outgoing

    def __len__(self) -> int:
        return len(self.relations)

    @overload
    def __getitem__(self, place: int) -> Fact: ...

    @overload
    def __getitem__(self, place: slice) -> list[Fact]: ...

    def __getitem__(self, place: int | slice) -> Fact | list[Fact]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return Fact(self.relation_ids[self.relations[place]], self.ids[self.others[place]], place >= self.outgoing)

    def of(self, relations: Sequence[int]) -> EntityFacts:
        """Those with one of these relations (rows of the table)."""
        kept = np.isin(self.relations, relations)
        return EntityFacts(
            self.ids, self.relation_ids, self.relations[kept], self.others[kept], int(kept[: self.outgoing].sum())
        )
