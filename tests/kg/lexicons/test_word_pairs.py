"""Pairs of related words of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.graph.store import GraphStore
from kg.lexicons.word_pairs import word_pairs
from workbench.core.errors import WorkbenchError

ENTITIES = {
    "d": {"label": "dog", "aliases": ["domestic dog", "Canis familiaris"]},
    "c": {"label": "canine", "aliases": ["canid"]},
    "w": {"label": "Dog", "aliases": ["chase"]},
    "x": {"label": "", "aliases": ["  "]},
}


def test_synonyms_and_the_words_of_both_ends_each_pair_once(tmp_path: Path) -> None:
    triples = [("d", "hypernym", "c"), ("w", "hypernym", "c"), ("c", "hyponym", "d"), ("x", "hypernym", "c")]
    graph = GraphStore.build(triples, tmp_path / "graph", entity_texts=ENTITIES)
    found = [tuple(pair) for pair in word_pairs(graph, ["hypernym"])]
    synonyms = {frozenset(pair[:2]) for pair in found if pair[2] == "synonym"}
    assert synonyms == {
        frozenset({"dog", "domestic dog"}),
        frozenset({"dog", "Canis familiaris"}),
        frozenset({"domestic dog", "Canis familiaris"}),
        frozenset({"canine", "canid"}),
        frozenset({"Dog", "chase"}),
    }
    above = [pair for pair in found if pair[2] == "hypernym"]
    assert {pair[1] for pair in above} == {"canine", "canid"}
    assert sorted(pair[0] for pair in above) == sorted(["dog", "domestic dog", "Canis familiaris", "chase"] * 2)
    assert {pair[3] for pair in above} == {"d", "w"}
    assert not [pair for pair in word_pairs(graph, []) if pair.relation != "synonym"]
    with pytest.raises(WorkbenchError, match="unknown relation 'hypernyms'"):
        list(word_pairs(graph, ["hypernyms"]))
