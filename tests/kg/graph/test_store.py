"""The graph store against plain dicts of the same triples."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import networkx
import numpy as np
import pytest

from kg.graph.drawing import write_graphml
from kg.graph.store import GraphStore
from kg.graph.strings import open_strings, save_strings
from workbench.core.errors import WorkbenchError

TRIPLES = [
    ("Q90", "P17", "Q142"),
    ("Q64", "P17", "Q183"),
    ("Q90", "P31", "Q515"),
    ("Q64", "P31", "Q515"),
    ("Q90", "P17", "Q142"),  # a duplicate
    ("Q142", "P36", "Q90"),
    ("Q90", "P1", "Q90"),  # a loop
]
TEXTS = [
    {"id": "Q90", "label": "Paris", "aliases": ["City of Light", "Lutèce"], "description": "capital of France"},
    {"id": "Q515", "label": "city", "types": ["Q1"], "extract": "not kept"},
    {"id": "Q1000", "label": "Nowhere"},
]
RELATIONS = {"P17": "country", "P31": "instance of"}


@pytest.fixture
def store(tmp_path):
    return GraphStore.build(iter(TRIPLES), tmp_path / "graph", entity_texts=TEXTS, relation_labels=RELATIONS)


def random_triples(rng, entities=60, relations=4, triples=700):
    rows = np.stack([rng.integers(n, size=triples) for n in (entities, relations, entities)], axis=1)
    return [(f"é{h}", f"r{r}", f"é{t}") for h, r, t in rows.tolist()]


def test_texts_and_counts(store):
    assert (store.num_entities, store.num_relations, store.num_triples) == (6, 4, 6)
    assert store.meta["duplicates"] == 1
    assert (store.meta["self_loops"], store.meta["isolated"], store.meta["unnamed_relations"]) == (1, 1, 2)
    assert store.label("Q90") == "Paris"
    assert store.label("Q142") == "Q142"
    assert store.label("P17") == "country"
    assert store.label("P36") == "P36" == store.relation_label("P36")
    assert store.aliases("Q90") == ["City of Light", "Lutèce"]
    assert store.aliases("Q142") == []
    assert store.description("Q90") == "capital of France"
    assert store.description("Q515") == ""
    assert store.types("Q515") == ["Q1"]
    assert "Q1000" in store
    assert "Q1001" not in store
    assert store.neighbours("Q1000") == []
    assert [store.ids[store.row(e)] for e in ("Q64", "Q1000")] == ["Q64", "Q1000"]


def test_neighbours_keep_the_order_given(store):
    assert store.neighbours("Q90") == [("P17", "Q142"), ("P31", "Q515"), ("P1", "Q90")]
    assert sorted(store.incoming("Q515")) == [("P31", "Q64"), ("P31", "Q90")]


def test_nothing_is_known_of_a_user(store):
    assert store.neighbours("Q7") == store.incoming("Q7") == []
    assert not store.has("Q7", "P17", "Q142")
    assert not store.has("Q90", "P99", "Q142")
    for ask in (store.row, store.label, store.aliases):
        with pytest.raises(WorkbenchError, match="no entity 'Q7'; ids look like 'Q90'"):
            ask("Q7")


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_against_dicts(tmp_path, seed):
    triples = random_triples(np.random.default_rng(seed))
    store = GraphStore.build(triples, tmp_path / "g")
    distinct = list(dict.fromkeys(triples))
    assert sorted(store.triples()) == sorted(distinct)
    assert Counter(map(tuple, store.triple_rows.tolist())) == Counter(
        (store.row(h), store.relation_ids.find(r), store.row(t)) for h, r, t in distinct
    )
    entities = {e for h, _, t in triples for e in (h, t)}
    for entity in entities:
        assert store.neighbours(entity) == [(r, t) for h, r, t in distinct if h == entity]
        assert Counter(store.incoming(entity)) == Counter((r, h) for h, r, t in distinct if t == entity)
        row = store.row(entity)
        around = Counter(store.ids[i] for i in store.neighbour_rows(row).tolist())
        assert around == Counter(e for _, e in store.neighbours(entity) + store.incoming(entity))
        assert store.degrees[row] == sum(around.values())
    known = set(distinct)
    for h, r, t in random_triples(np.random.default_rng(seed + 100)):
        assert store.has(h, r, t) == ((h, r, t) in known)


def test_facts_of_an_entity(store):
    out = list(store.facts("Q64"))
    assert out == [(r, t, False) for r, t in store.neighbours("Q64")]
    incoming = [(r, h, True) for r, h in store.incoming("Q64")]
    assert list(store.facts("Q64", "in")) == incoming
    both = store.facts("Q64", "both")
    assert list(both) == both[:] == out + incoming
    assert both[-1] == (out + incoming)[-1]
    assert [f.relation for f in store.facts("Q90", "both", ["P31"])] == ["P31"]
    assert list(store.facts("Q7", "both")) == []
    with pytest.raises(IndexError):
        both[len(both)]
    with pytest.raises(WorkbenchError, match="unknown relation 'P77'"):
        store.facts("Q64", "out", ["P77"])


def test_an_empty_graph(tmp_path):
    store = GraphStore.build([], tmp_path / "g")
    assert store.num_entities == store.num_triples == 0
    assert list(store.triples()) == []
    assert "Q1" not in store
    assert store.under("shuffled-kg", 0).num_triples == 0


def test_subgraph(store):
    one = store.subgraph(["Q64"], hops=1)
    assert set(one) == {"Q64", "Q183", "Q515"}
    assert one.nodes["Q515"]["label"] == "city"
    assert one.edges["Q64", "Q183", "P17"]["label"] == "country"
    two = store.subgraph(["Q64"], hops=2)
    assert set(two) == {"Q64", "Q183", "Q515", "Q90"}
    assert two.number_of_edges() == 3
    assert store.subgraph(["Q90"], hops=5).number_of_edges() == 6
    assert set(store.subgraph(["Q90"], hops=0)) == {"Q90"}
    assert store.subgraph(["Q515"], hops=1, limit=1).number_of_edges() == 1
    with pytest.raises(WorkbenchError, match="no entity 'Q7'"):
        store.subgraph(["Q7"])


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_keeps_degrees_and_relations(tmp_path, seed):
    store = GraphStore.build(random_triples(np.random.default_rng(seed), entities=200), tmp_path / "g")
    false = store.under("shuffled-kg", 7)
    for column in ([0, 1], [1, 2]):
        before = Counter(map(tuple, store.triple_rows[:, column].tolist()))
        assert Counter(map(tuple, false.triple_rows[:, column].tolist())) == before
    assert len(set(false.triples())) == store.num_triples, "the shuffled graph repeats a triple"
    assert np.mean([store.has(*triple) for triple in false.triples()]) < 0.1
    h, r, t = next(false.triples())
    assert false.has(h, r, t)
    assert (r, t) in false.neighbours(h)
    assert (r, h) in false.incoming(t)
    assert np.array_equal(false.degrees, store.degrees)
    assert np.array_equal(store.under("shuffled-kg", 7).triple_rows, false.triple_rows)
    assert not np.array_equal(store.under("shuffled-kg", 8).triple_rows, false.triple_rows)


def test_shuffling_ends_where_only_one_arrangement_exists(tmp_path):
    every_pair = [(f"h{i}", "r", f"t{j}") for i in range(4) for j in range(4)]
    store = GraphStore.build(every_pair, tmp_path / "g")
    assert store.under("shuffled-kg", 0).num_triples == 16


def test_pickles_as_its_path(store):
    data = pickle.dumps(store)
    assert len(data) < 500
    assert pickle.loads(data).neighbours("Q90") == store.neighbours("Q90")
    again = pickle.loads(pickle.dumps(store.under("shuffled-kg", 3)))
    assert list(again.triples()) == list(store.under("shuffled-kg", 3).triples())


def test_a_graph_that_was_replaced_is_not_opened_in_its_place(tmp_path):
    data = pickle.dumps(GraphStore.build([("a", "r", "b")], tmp_path / "g"))
    (tmp_path / "g").rename(tmp_path / "away")
    GraphStore.build([("a", "r", "c")], tmp_path / "g")
    with pytest.raises(WorkbenchError, match="was replaced while it was in use"):
        pickle.loads(data)


def test_from_records(tmp_path, store):
    records = [
        {
            "id": "Q90",
            "label": "Paris",
            "aliases": ["Lutèce"],
            "triples": [{"relation": "P17", "relation_text": "country", "tail": "Q142", "tail_text": "France"}],
        },
        {"id": "Q142", "label": "France", "aliases": [], "description": "a country", "types": [], "triples": []},
        {"id": "Q64", "label": "Q64", "triples": [{"relation": "P17", "tail": "Q183", "tail_text": "Germany"}]},
    ]
    graph = GraphStore.from_records(records, tmp_path / "records")
    assert list(graph.triples()) == [("Q90", "P17", "Q142"), ("Q64", "P17", "Q183")]
    assert (graph.label("Q183"), graph.label("Q64"), graph.meta["labels"]) == ("Germany", "Q64", 3)
    assert (graph.label("Q142"), graph.label("P17"), graph.aliases("Q90")) == ("France", "country", ["Lutèce"])


@pytest.mark.parametrize(
    ("triples", "texts", "message"),
    [
        ([("a", "b", "c"), ("a", "b")], [], "triple 2 is .*three non-empty strings"),
        ([("a", "", "c")], [], "triple 1 is"),
        ([("a", "b", 3)], [], "triple 1 is"),
        ([], [{"label": "x"}], "no 'id'; found the keys"),
        ([], [{"id": "x"}, {"id": "x"}], "'x' is described twice"),
        ([], [{"id": "x", "label": 3}], "label of entity 'x' is 3"),
        ([], [{"id": "x", "aliases": "one"}], "aliases of entity 'x' are 'one'"),
        ([("\ud83d", "b", "c")], [], "not valid Unicode"),
    ],
)
def test_wrong_input_leaves_nothing_behind(tmp_path, triples, texts, message):
    with pytest.raises(WorkbenchError, match=message):
        GraphStore.build(triples, tmp_path / "g", entity_texts=texts)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_not_overwritten(store):
    with pytest.raises(WorkbenchError, match="exists already"):
        GraphStore.build(TRIPLES, store.path)
    assert GraphStore.open(store.path).num_triples == 6


def test_missing_and_damaged_graphs(store, tmp_path):
    with pytest.raises(WorkbenchError, match=r"there is no graph store at .*prepare triples"):
        GraphStore.open(tmp_path / "nothing")
    blob = store.path / "labels.blob"
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-3])
    with pytest.raises(WorkbenchError, match=r"labels\.blob was changed or damaged.*build the graph again"):
        GraphStore.open(store.path)
    blob.write_bytes(whole)
    (store.path / "triples.npy").write_bytes(b"nonsense")
    with pytest.raises(WorkbenchError, match=r"triples\.npy was changed or damaged"):
        GraphStore.open(store.path)
    (store.path / "triples.npy").unlink()
    with pytest.raises(WorkbenchError, match=r"triples\.npy is missing"):
        GraphStore.open(store.path)
    (store.path / "graph.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(WorkbenchError, match="of format 99"):
        GraphStore.open(store.path)


def test_strings_with_equal_hashes_are_distinguished(tmp_path, monkeypatch):
    monkeypatch.setattr("kg.graph.strings.digest64", lambda text: len(text))
    strings = ["aa", "bb", "c", "", "日本", "dd"]
    save_strings(tmp_path, "names", strings, index=True)
    table = open_strings(tmp_path, "names")
    assert [table.find(s) for s in strings] == list(range(6))
    assert table.find("ee") == table.find("none") == -1
    assert list(table) == strings
    assert table[1:3] == ["bb", "c"]
    assert table[-1] == "dd"
    assert pickle.loads(pickle.dumps(table)).find("日本") == 4


@pytest.mark.data
def test_codex_m(shared, tmp_path):
    folder = shared / "data" / "codex"
    lines = (folder / "codex-m" / "train.txt").read_text(encoding="utf-8").splitlines()
    triples = [tuple(line.split("\t")) for line in lines]
    rows = map(json.loads, (folder / "entity_text_codex-s.jsonl").read_text(encoding="utf-8").splitlines())
    store = GraphStore.build(triples, tmp_path / "g", entity_texts=rows)
    assert store.num_triples == len(set(triples)) == 185_584
    assert store.label("Q7604") == "Leonhard Euler"
    assert all(store.has(*triple) for triple in triples[:2000])


def test_labels_of_several_entities_are_counted(tmp_path):
    texts = [{"id": "a", "label": "Paris"}, {"id": "b", "label": "Paris"}, {"id": "c", "label": "Oslo"}]
    assert GraphStore.build([("a", "r", "b")], tmp_path / "g", entity_texts=texts).meta["shared_labels"] == 2


def test_a_part_as_graphml(store, tmp_path):
    write_graphml(store.subgraph(["Q142"], hops=2), tmp_path / "part.graphml")
    graph = networkx.read_graphml(tmp_path / "part.graphml", force_multigraph=True)
    reported = {(h, data["relation"], t) for h, t, data in graph.edges(data=True)}
    assert reported == {triple for triple in TRIPLES if "Q90" in triple}
    assert graph.nodes["Q90"]["label"] == "Paris"
    assert {data["label"] for _, _, data in graph.edges(data=True)} == {"country", "instance of", "P36", "P1"}
    odd = GraphStore.build([("a", "r", "b")], tmp_path / "odd", entity_texts=[{"id": "a", "label": "A\x07"}])
    write_graphml(odd.subgraph(["a"]), tmp_path / "odd.graphml")
    assert networkx.read_graphml(tmp_path / "odd.graphml").nodes["a"]["label"] == "A"
