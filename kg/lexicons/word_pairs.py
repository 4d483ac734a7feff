"""Pairs of words that a graph of senses relates: names of one entity, and those of two that a triple joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

from kg.graph.store import GraphStore
from kg.graph.strings import digest64

SYNONYM = "synonym"


class WordPair(NamedTuple):
    """Two words, how they are related, and the entity that says so."""

    first: str
    second: str
    relation: str
    entity: str


def word_pairs(graph: GraphStore, relations: Iterable[str]) -> Iterator[WordPair]:
    """Each pair once, as the first that relates it says: synonyms, then heads and tails of the triples of relations.

    Raises:
        WorkbenchError: the graph has no such relation.
    """
    wanted = {graph.relation_row(name): name for name in relations}
    seen: set[int] = set()
    for pair in _all(graph, wanted):
        first, second = pair.first.lower(), pair.second.lower()
        key = digest64(f"{first}\t{second}")
        if first != second and key not in seen:
            seen |= {key, digest64(f"{second}\t{first}")}
            yield pair


def _all(graph: GraphStore, relations: dict[int, str]) -> Iterator[WordPair]:
    for row in range(graph.num_entities):
        entity = graph.ids[row]
        yield from (WordPair(a, b, SYNONYM, entity) for a, b in combinations(names_of(graph, row), 2))
    for head, relation, tail in graph.triple_rows.tolist():
        if relation in relations:
            names = product(names_of(graph, head), names_of(graph, tail))
            yield from (WordPair(a, b, relations[relation], graph.ids[head]) for a, b in names)


def names_of(graph: GraphStore, row: int) -> list[str]:
    """The names of the entity of a row: its label, then its aliases."""
    return [name for name in (graph.label_of(row), *graph.texts_of(row).get("aliases", ())) if name.strip()]
