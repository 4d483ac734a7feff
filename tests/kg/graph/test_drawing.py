"""Figures of parts of a graph."""

from __future__ import annotations

import pytest
from PIL import Image

from kg.graph.drawing import MOST, draw_graph
from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError


@pytest.fixture
def store(tmp_path):
    triples = [("a", "r", f"t{number}") for number in range(MOST)]
    triples += [("a", "r", "a"), ("t1", "q", "t2"), ("t2", "q", "t1")]
    texts = [{"id": "a", "label": "A price of $5 & more: " + "long " * 20}]
    return GraphStore.build(triples, tmp_path / "graph", entity_texts=texts)


def test_an_image_of_each_kind(store, tmp_path):
    found = store.subgraph(["t1"], hops=2, limit=4)
    for name in ("one.svg", "one.png", "one.pdf"):
        draw_graph(found, tmp_path / name, ["t1"])
    assert "<svg" in (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(tmp_path / "one.png") as figure:
        assert min(figure.size) > 500
        assert len(set(figure.convert("L").resize((64, 64)).tobytes())) > 3, "nothing was drawn"
    draw_graph(store.subgraph(["t3"], hops=0), tmp_path / "alone.png")
    assert (tmp_path / "alone.png").stat().st_size > 1000


def test_what_is_not_drawn(store, tmp_path):
    with pytest.raises(WorkbenchError, match=r"ends in \.svg, \.png, \.pdf"):
        draw_graph(store.subgraph(["a"], limit=2), tmp_path / "one.gif")
    with pytest.raises(WorkbenchError, match="entities are too many for a figure"):
        draw_graph(store.subgraph(["a"]), tmp_path / "one.png")
    assert not list(tmp_path.glob("one*"))
