"""The subgraph around linked entities, as nodes and edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.sequences.transforms.subgraph import SubgraphTransform
from tests.contracts.material import draws
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sequence, Span, text_fields

EXCUSED = "it reads a graph on disk; its own tests say what it makes"
TRIPLES = [("Q1", "P1", "Q2"), ("Q3", "P2", "Q2"), ("Q1", "P1", "Q4"), ("Q5", "P1", "Q6")]
TABLE = {f"Q{n}": n - 1 for n in range(1, 6)}


@pytest.fixture
def graph(tmp_path: Path) -> GraphStore:
    GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=[{"id": f"Q{n}"} for n in range(1, 7)])
    return GraphStore.open(tmp_path / "graph")


def made(graph: GraphStore, spans: list[Span], **options: Any) -> tuple[list[int], list[int], set[tuple[int, ...]]]:
    """Entity numbers, kinds, and edges (from, to, relation)."""
    given = Sequence({"text": text_fields(np.arange(9))}, (0,), spans=spans)
    (found,) = SubgraphTransform(graph, TABLE, **{"relations": 2, **options})([given], draws())
    node, edge = found.streams["node"], found.streams["edge"]
    edges = zip(np.asarray(edge["token"]), np.asarray(edge["last"]), edge["relation"], strict=True)
    return node["entity_ids"].tolist(), node["kind"].tolist(), {tuple(map(int, each)) for each in edges}


BOTH = [Span(1, 2, "Q1"), Span(3, 4, "Q3")]


def test_linked_entities_are_joined_by_their_neighbours(graph: GraphStore) -> None:
    ids, kinds, edges = made(graph, BOTH, most=1)
    assert ids == [0, 1, 3, 2], "the interaction node, Q1, Q3, and Q2, the first neighbour of both"
    assert kinds == [0, 1, 1, 2]
    own = {(0, 1, 0), (1, 0, 0), (0, 2, 0), (2, 0, 0)}
    assert edges == own | {(1, 3, 1), (3, 1, 3), (2, 3, 2), (3, 2, 4)}


def test_neighbours_are_limited_and_need_a_vector(graph: GraphStore) -> None:
    assert made(graph, [Span(1, 2, "Q5")])[0] == [0, 5], "Q6 has no vector"
    assert made(graph, BOTH)[0] == [0, 1, 3, 2, 4]
    assert made(graph, BOTH, nodes=3)[0] == [0, 1, 3]


def test_controls_ablate_the_graph(graph: GraphStore) -> None:
    assert made(graph, BOTH, control="no-kg") == ([0], [0], set())
    ids, kinds, edges = made(graph, BOTH, control="mentions-only")
    assert (ids, kinds) == ([0, 1, 1], [0, 1, 1])
    assert {relation for _, _, relation in edges} == {0}
    shuffled = made(graph, [Span(1, 2, "Q5")], control="shuffled-kg")
    assert shuffled[0][-1] in (2, 4), "the tail of another triple of its relation"


def test_a_text_by_itself_keeps_its_subgraph(graph: GraphStore) -> None:
    given = Sequence({"text": text_fields(np.arange(9)), "image": {"features": np.zeros((2, 3))}}, (0,), spans=BOTH)
    (found,) = SubgraphTransform(graph, TABLE, relations=2)([given], draws())
    assert {*found.alone("text").streams} == {"text", "node", "edge"}
    assert {*found.alone("image").streams} == {"image"}


def test_more_relations_than_the_layer_has_are_refused(graph: GraphStore) -> None:
    with pytest.raises(WorkbenchError, match="has 2 relations and relations = 1"):
        made(graph, BOTH, relations=1)
