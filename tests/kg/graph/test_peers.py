"""Entities of the same type, against a search through all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kg.graph.peers import Peers
from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError

TEXTS = {
    "oslo": {"label": "Oslo", "types": ["town", "capital"], "aliases": ["Christiania"]},
    "lima": {"label": "Lima", "types": ["town"]},
    "other-oslo": {"label": "OSLO", "types": ["town"]},
    "old-oslo": {"label": "Christiania", "types": ["town"]},
    "nameless": {"types": ["town", "capital"]},
    "cairo": {"label": "Cairo", "types": ["capital", "capital"]},
    "nile": {"label": "Nile", "types": ["river"]},
    "untyped": {"label": "Untyped"},
}


def build(folder: Path, texts: dict) -> GraphStore:
    return GraphStore.build([], folder / "graph", entity_texts=texts)


def test_the_others_are_named_otherwise_and_share_a_type(tmp_path: Path) -> None:
    peers = Peers(build(tmp_path, TEXTS))
    rng = np.random.default_rng(0)
    drawn = [peers.other("oslo", "Oslo", rng) for _ in range(400)]
    assert {found for found in drawn if found} == {("lima", "Lima"), ("cairo", "Cairo")}
    assert sum(found == ("cairo", "Cairo") for found in drawn) == pytest.approx(200, abs=50)  # the type is drawn first
    assert {peers.other("cairo", "Cairo", rng) for _ in range(30)} == {("oslo", "Oslo")}
    assert {peers.other("lima", "oslo", rng) for _ in range(60)} - {None} == {("old-oslo", "Christiania")}


@pytest.mark.parametrize("entity", ["nile", "untyped", "unknown"])
def test_some_have_no_other(tmp_path: Path, entity: str) -> None:
    assert Peers(build(tmp_path, TEXTS)).other(entity, "it", np.random.default_rng(0)) is None


def test_members_are_those_of_a_search(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    texts = {
        f"e{i}": {"label": f"E{i}" if i % 7 else "", "types": [f"t{j}" for j in np.flatnonzero(rng.random(5) < 0.3)]}
        for i in range(120)
    }
    graph = build(tmp_path, texts)
    peers = Peers(graph)
    for name in ("t0", "t1", "t2", "t3", "t4", "t5"):
        wanted = [i for i, e in enumerate(graph.ids) if texts[e]["label"] and name in texts[e]["types"]]
        assert peers.of(name).tolist() == wanted


def test_a_graph_without_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"no two entities with a label and a type .* --types"):
        Peers(build(tmp_path, {"oslo": {"label": "Oslo"}, "nile": TEXTS["nile"]}))
