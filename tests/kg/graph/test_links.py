"""Triples gathered on disk against plain lists and dicts of the same triples."""

from __future__ import annotations

import numpy as np
import pytest

from kg.graph import builder, links, spill
from kg.graph.links import TripleLinks, distinct
from kg.graph.numbering import Numbering
from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError


@pytest.fixture
def small(monkeypatch):
    """Everything in pieces of a few rows."""
    monkeypatch.setattr(links, "NUMBERED_AT_ONCE", 7)
    monkeypatch.setattr(links, "SORTED_AT_ONCE", 11)
    for module in (spill, links, builder):
        monkeypatch.setattr(module, "BLOCK", 5)


def made_up(seed, count=300):
    rng = np.random.default_rng(seed)
    heads = 12 * rng.random(count) ** 2  # one head has more triples than one range
    rows = np.stack([heads.astype(int), rng.integers(3, size=count), rng.integers(20, size=count)], axis=1)
    return [(f"é{h}", f"r{r}", f"é{t}") for h, r, t in rows.tolist()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("small")
def test_parts_are_all_distinct_triples_by_head(seed):
    triples = made_up(seed)
    found = TripleLinks()
    for triple in triples:
        found.add(*triple)
    entities = list(dict.fromkeys(e for h, _, t in triples for e in (h, t)))
    relations = list(dict.fromkeys(r for _, r, _ in triples))
    parts = list(found.parts())
    assert len(found) == len(triples)
    assert list(found.entities.names()) == entities
    assert list(found.relations) == relations
    assert len(parts) > 2
    assert [p.begin for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == len(entities)
    reported = [(entities[h], relations[r], entities[t]) for p in parts for h, r, t in p.rows.tolist()]
    expected = sorted(dict.fromkeys(triples), key=lambda triple: entities.index(triple[0]))
    assert reported == expected


@pytest.mark.usefixtures("small")
def test_a_graph_in_pieces_equals_one_in_one_piece(tmp_path, monkeypatch):
    triples = made_up(5)
    texts = [{"id": f"é{number}", "label": f"name {number % 7}"} for number in range(0, 40, 2)]
    pieces = GraphStore.build(triples, tmp_path / "pieces", entity_texts=texts)
    monkeypatch.undo()
    whole = GraphStore.build(triples, tmp_path / "whole", entity_texts=texts)
    assert pieces.identity == whole.identity


def test_numbers_in_the_order_of_first_appearance():
    numbering, expected = Numbering(), {}
    rng = np.random.default_rng(0)
    for size in (0, 1, 50, 3, 700, 20):
        names = [f"日{number}" for number in rng.integers(400, size=size)]
        numbers = numbering.numbers(names)
        assert numbers.tolist() == [expected.setdefault(name, len(expected)) for name in names]
        assert len(numbering) == len(expected)
        assert list(numbering.names()) == list(expected)
    with pytest.raises(WorkbenchError, match="not valid Unicode"):
        numbering.numbers(["\ud83d"])


def test_distinct_keeps_the_first_of_each():
    rows = np.random.default_rng(0).integers(0, 4, (200, 3)).astype(np.int32)
    expected = sorted(dict.fromkeys(map(tuple, rows.tolist())), key=lambda row: row[0])
    assert list(map(tuple, distinct(rows).tolist())) == expected


@pytest.mark.usefixtures("small")
def test_what_was_asked_for_comes_with_its_number():
    reported, found = {}, TripleLinks()
    for number, (head, relation, tail) in enumerate(made_up(1, 40)):
        found.add(head, relation, tail)
        found.ask(f"é{number}", lambda row, name=f"é{number}": reported.update({name: row}))
    found.flush()
    names = list(found.entities.names())
    assert reported == {name: names.index(name) for name in reported}
    assert len(reported) == 40


def test_ids_that_are_no_strings_are_reported() -> None:
    """Of a reader that decodes JSON, say."""
    with pytest.raises(WorkbenchError, match="the id 3 is a int; a reader yields triples of three strings"):
        Numbering().numbers(["a", 3])  # type: ignore[list-item]
