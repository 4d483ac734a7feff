"""Branches of a sentence tree: the selected triples of an entity, and their spelling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from annotated_types import MinLen

from kg.graph.entity_facts import Direction, Fact
from workbench.core.options.bounds import Count, Name
from workbench.text.tokenizer import Tokenizer

CACHED = 1 << 16
Sampling = Literal["first", "random"]
Unnamed = Literal["skip", "id"]


@runtime_checkable
class Graph(Protocol):
    """The interface of the graph that the tree reads (`kg.graph.store.GraphStore` is one)."""

    def __contains__(self, entity: object) -> bool:
        """Whether it holds an entity."""

    def facts(self, entity: str, direction: Direction, relations: Iterable[str] | None) -> Ordered[Fact]:
        """The triples of an entity, in the graph's order, the outgoing ones first."""

    def name_of(self, entity: str) -> str:
        """The name of an entity; empty if the graph has none."""

    def relation_label(self, relation: str) -> str:
        """The readable name of a relation."""


@dataclass(frozen=True)
class Branches:
    """The token ids of an entity's branches, and how many triples were passed over as the other end has no name."""

    ids: tuple[tuple[int, ...], ...]
    unnamed: int


@dataclass(frozen=True)
class BranchOptions:
    """The selected triples of a mention's entity, and their spelling.

    Attributes:
        most: so many distinct ones at most (the released code: 2).
        direction: whether the mention is their head (`out`, as in the paper), their tail (`in`; spelt as subject and
            predicate) or either (`both`, those that go out first).
        relations: the only ones that are read.
        sampling: the `first` in the graph's order, or drawn anew for every mention each time it is read (`random`).
        predicate: spelt with it, or as the object alone.
        unnamed: a triple whose other end has no label is passed over and counted (`skip`), unless nothing in the graph
            has one, or read by its `id`.
    """

    most: Count = 2
    direction: Direction = "out"
    relations: Annotated[list[Name], MinLen(1)] | None = None
    sampling: Sampling = "first"
    predicate: bool = True
    unnamed: Unnamed = "skip"


class BranchMaker:
    """Makes the branches of entities; what depends on no draw is kept."""

    def __init__(
        self,
        graph: Graph,
        tokenizer: Tokenizer,
        triples: BranchOptions,
        blank: int | None = None,
        end: str | None = None,
    ) -> None:
        """
        Args:
            blank: a token that is all that is read of an entity with triples, in one branch.
            end: triples are spelt whole, with the entity itself, and this at their end.
        """
        self.graph, self.tokenizer, self.triples, self.blank, self.end = graph, tokenizer, triples, blank, end
        self._keep()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_first", "encoded")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._keep()

    def of(self, entity: str, rng: np.random.Generator | None = None) -> Branches:
        """The branches of one mention of the entity; `rng` draws them, where they are drawn."""
        if self.triples.sampling == "first":
            return self._first(entity)
        assert rng is not None
        facts = self._facts(entity)
        return self._spelt(entity, (facts[i] for i in rng.permutation(len(facts)).tolist()))

    def texts_of(self, entity: str) -> list[str]:
        """The texts of all branches that mentions of the entity may get; of a `blank` one "", if it gets any."""
        found = self.spelt(entity)
        return found if self.blank is None else [""] * bool(found)

    def spelt(self, entity: str) -> list[str]:
        """The texts of all triples of an entity, also where a blank stands for them."""
        return [text for text in self._texts(entity, self._facts(entity)) if text is not None]

    def _keep(self) -> None:
        self._first = lru_cache(CACHED)(lambda entity: self._spelt(entity, self._facts(entity)))
        self.encoded = lru_cache(CACHED)(lambda text: tuple(self.tokenizer.encode_batch([text])[0].ids.tolist()))

    def _facts(self, entity: str) -> Ordered[Fact]:
        return self.graph.facts(entity, self.triples.direction, self.triples.relations)

    def _spelt(self, entity: str, facts: Iterable[Fact]) -> Branches:
        """The first facts that are spelt differently, and how many before the last of them have no spelling."""
        spelt: dict[str, None] = {}
        unnamed = 0
        for text in self._texts(entity, facts):
            if text is None:
                unnamed += 1
                continue
            spelt[text] = None
            if len(spelt) == self.triples.most:
                break
        if spelt and self.blank is not None:
            return Branches(((self.blank,),), unnamed)
        return Branches(tuple(map(self.encoded, spelt)), unnamed)

    def _texts(self, entity: str, facts: Iterable[Fact]) -> Iterator[str | None]:
        """Predicate and object, or subject and predicate: the mention is what lacks, unless triples are whole."""
        own, end = ("", "") if self.end is None else (self.graph.name_of(entity) or entity, self.end)
        for fact in facts:
            name = self.graph.name_of(fact.other) or (fact.other if self.triples.unnamed == "id" else "")
            relation = self.graph.relation_label(fact.relation) if self.triples.predicate else ""
            parts = (name, relation, own, end) if fact.incoming else (own, relation, name, end)
            yield " ".join(filter(None, parts)) if name else None
