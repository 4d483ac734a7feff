"""The control random-entities of components that read a graph: every entity has the facts of another one.

Exchanging tails leaves an entity its relations, and these reveal its kind (an entity with a spouse is a person).
Here the facts go whole to another entity: the names of the graph stay, and so does whether an entity has any facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kg.graph.entity_facts import Direction, EntityFacts
from kg.graph.patterns import RemainingPatterns, remaining_patterns, report_remaining
from kg.graph.store import GraphStore
from workbench.core.keyed import generator


class PermutedGraph:
    """A graph whose entities have each other's facts, by one random circle; see `kg.sequences.branches.Graph`.

    Args:
        direction: those with facts in this direction exchange them; others have none before and after.
    """

    def __init__(self, graph: GraphStore, direction: Direction, seed: int) -> None:
        self.graph, self.direction, self.seed = graph, direction, seed
        out, into = (np.bincount(rows, minlength=graph.num_entities) for rows in graph.triple_rows.T[[0, 2]])
        degrees = {"out": out, "in": into, "both": out + into}[direction]
        circle = generator("random-entities of a graph", seed).permutation(np.flatnonzero(degrees))
        self.others = np.arange(graph.num_entities)
        self.others[circle] = np.roll(circle, 1)
        self.left = self._left()
        report_remaining("random-entities", graph.path, list(graph.relation_ids), self.left, None, seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return PermutedGraph, (self.graph, self.direction, self.seed)

    def __contains__(self, entity: object) -> bool:
        return entity in self.graph

    def facts(self, entity: str, direction: Direction = "out", relations: Iterable[str] | None = None) -> EntityFacts:
        """The triples of the other entity."""
        row = self.graph.ids.find(entity)
        return self.graph.facts(self.graph.ids[int(self.others[row])] if row >= 0 else entity, direction, relations)

    def name_of(self, entity: str) -> str:
        """The name of the entity itself."""
        return self.graph.name_of(entity)

    def relation_label(self, relation: str) -> str:
        """As in the graph."""
        return self.graph.relation_label(relation)

    def _left(self) -> RemainingPatterns:
        """How much of the truth is left: by what an entity is shown as the tail of each of its relations."""
        heads, relations, tails = self.graph.triple_rows.T.astype(np.int64)
        if self.direction == "in":  # what is asked of an entity is then the head
            heads, tails = tails, heads
        size = self.graph.num_relations
        known, first = np.unique(heads * size + relations, return_index=True)
        asked = self.others[heads] * size + relations
        place = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
        shown = np.where(known[place] == asked, tails[first[place]], -1) if len(known) else tails
        return remaining_patterns(relations, tails, shown)
