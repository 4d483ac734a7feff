"""Facts of a test set that a graph states: counted, and left out of a graph."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kg.evaluation.contamination import stated_facts, stated_types
from kg.evaluation.tasks.relations import RelationClassification
from kg.graph.store import GraphStore
from pipelines.commands.corpora.text import text
from pipelines.commands.corpora.triples import triples
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus

TRIPLES = """Oslo\tcapital\tNorway
Norway\tcontains\tOslo
Oslo\tnear\tDrammen
Bergen\tin\tNorway
Norway\tborders\tSweden
"""


def row(head, tail, relation, linked=True):
    sentence = f"{head} and {tail} ."
    ends = [[head, 0, len(head)], [tail, len(head) + 5, len(sentence) - 2]]
    found = ends if linked else []
    return {"text": sentence, "ents": ends, "ann": found, "label": relation}


@pytest.fixture
def places(tmp_path):
    (tmp_path / "graph.tsv").write_text(TRIPLES)
    rows = [
        row("Oslo", "Norway", "capital"),  # stated, and another fact of the pair
        row("Bergen", "Norway", "near"),  # the pair has another fact
        row("Sweden", "Norway", "borders"),  # in the other direction
        row("Oslo", "Sweden", "near"),
        row("Oslo", "Drammen", "near", linked=False),  # nobody knows which entities these are
        row("Oslo", "Nowhere", "near"),
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    command(text)(inputs=[str(tmp_path / "test.jsonl")], output=tmp_path / "test", workers=1)
    return tmp_path


def test_facts_are_counted(places):
    command(triples)(inputs=[str(places / "graph.tsv")], output=places / "graph", workers=1)
    samples = list(Corpus.open(places / "test"))
    assert stated_facts({}, samples) == {}
    with noted() as read:
        GraphStore.open(places / "graph")
    assert stated_facts(read, samples) == {
        "pairs that the graph knows": 4,
        "facts that the graph states": 1,
        "pairs that the graph joins": 3,
    }
    run = SimpleNamespace(loaded=SimpleNamespace(data_identities=read))
    assert RelationClassification().known_before(run, {}, samples) == stated_facts(read, samples)
    replaced = {"graph": dict.fromkeys(read["graph"], "another")}
    assert stated_facts(replaced, samples) == {}


def test_facts_are_left_out(places):
    command(triples)(
        inputs=[str(places / "graph.tsv")], output=places / "clean", without=[str(places / "test")], workers=1
    )
    store = GraphStore.open(places / "clean")
    assert sorted(store.triples()) == [("Oslo", "near", "Drammen")]
    assert "Sweden" in store, "its entities stay"
    corpus = Corpus.open(places / "clean")
    assert corpus.manifest.dropped == {
        "TriplesTsv: a fact of a test set": 1,
        "TriplesTsv: another fact of a pair of a test set": 3,
    }
    assert Corpus.open(places / "test").identity in json.dumps(corpus.manifest.provenance)
    with noted() as read:
        GraphStore.open(places / "clean")
    reported = stated_facts(read, Corpus.open(places / "test"))
    assert [*reported.items()] == [
        ("pairs that the graph knows", 4),
        ("facts that the graph states", 0),
        ("pairs that the graph joins", 0),
    ]


def test_facts_of_classified_entities_are_left_out(tmp_path):
    """A test set of tags, or of typed mentions, asks what its entities are: no fact or type of these stays."""
    (tmp_path / "graph.tsv").write_text(TRIPLES)
    (tmp_path / "types.jsonl").write_text('{"id": "Bergen", "types": ["city"]}\n{"id": "Oslo", "types": ["city"]}\n')
    tagged = {"tags": [[0, 4, "B-city"], [5, 9, "I-city"], [10, 17, "O"], [19, 26, "S-city"]]}
    rows = [
        {"text": "Oslo City borders, Drammen", "spans": [[0, 9, "Oslo", 1.0], [10, 17, "Norway", 1.0]], **tagged},
        {"text": "Bergen", "spans": [[0, 6, "Bergen", 1.0]], "mention": [0, 6], "types": ["city"]},
    ]
    places = []
    for number, row in enumerate(rows):
        raw = tmp_path / f"test-{number}.jsonl"
        raw.write_text(json.dumps(row) + "\n")
        places.append(str(tmp_path / f"test-{number}"))
        command(text)(inputs=[str(raw)], output=Path(places[-1]), workers=1)
    inputs = {"inputs": [str(tmp_path / "graph.tsv")], "types": [str(tmp_path / "types.jsonl")], "workers": 1}
    command(triples)(**inputs, output=tmp_path / "clean", without=places)
    store = GraphStore.open(tmp_path / "clean")
    assert sorted(store.triples()) == [("Norway", "borders", "Sweden"), ("Norway", "contains", "Oslo")]
    assert (list(store.types("Bergen")), list(store.types("Oslo")), "Oslo" in store) == ([], [], True)
    dropped = Corpus.open(tmp_path / "clean").manifest.dropped
    assert dropped == {"TriplesTsv: a fact of an entity whose class a test set asks for": 3}


def test_a_set_without_relations(places):
    (places / "notes.txt").write_text("Oslo.\n")
    command(text)(inputs=[str(places / "notes.txt")], output=places / "notes", workers=1)
    with pytest.raises(WorkbenchError, match="no text has a marked head and tail that are both linked"):
        command(triples)(
            inputs=[str(places / "graph.tsv")], output=places / "g", without=[str(places / "notes")], workers=1
        )
    assert not Path(places / "g").exists()


def test_types_are_counted(tmp_path):
    texts = {"Q1": {"label": "Bergman", "types": ["Q5"]}, "Q5": {"label": "human"}, "Q33": {"label": "stage director"}}
    GraphStore.build([("Q1", "P106", "Q33")], tmp_path / "g", entity_texts=texts)
    with noted() as read:
        GraphStore.open(tmp_path / "g")

    def mention(entity, *types):
        return {"mention": [0, 3], "spans": [[0, 3, entity, 1.0]], "types": list(types)}

    samples = [
        mention("Q1", "/person/stage_director"),
        mention("Q1", "human", "artist"),
        mention("Q1", "place"),
        mention("Q9", "human"),
        {"mention": [0, 3], "types": ["human"]},
    ]
    assert stated_types(read, samples) == {"types that the graph states": 2}
    assert stated_types({}, samples) == {}
