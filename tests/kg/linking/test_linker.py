"""The linker: ambiguity, context, provenance, saving."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.linking.context import Profiles, Words, profile_words
from kg.linking.linker import Linker
from workbench.errors import WorkbenchError

TEXTS = [
    {"id": "Q90", "label": "Paris", "aliases": ["City of Light"], "description": "capital of France on the Seine"},
    {"id": "Q167646", "label": "Paris", "description": "son of Priam in Greek mythology, killed at Troy"},
    {"id": "Q830149", "label": "Paris", "description": "county seat in Texas, United States"},
    {"id": "Q142", "label": "France"},
    {"id": "Q1439", "label": "Texas"},
    {"id": "Q22698", "label": "park"},
    {"id": "Q40", "label": "The Park of the Princes", "aliases": ["Parc des Princes", "x"]},
]
TRIPLES = [("Q90", "P17", "Q142"), ("Q142", "P36", "Q90"), ("Q90", "P1", "Q40"), ("Q830149", "P131", "Q1439")]


@pytest.fixture
def store(tmp_path):
    return GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=TEXTS)


@pytest.fixture
def linker(store):
    return Linker.from_store(store)


def test_links_are_sorted_disjoint_and_in_characters(linker):
    text = "FRANCE, Texas; the parc des princes x"
    links = linker.link(text)
    assert [(text[s:e], entity, score) for s, e, entity, score in links] == [
        ("FRANCE", "Q142", 1.0),
        ("Texas", "Q1439", 1.0),
        ("parc des princes", "Q40", 1.0),
    ]


def test_the_context_decides(linker):
    def entity(text):
        return [link[2] for link in linker.link(text) if text[link[0] : link[1]] == "Paris"]

    assert entity("Paris") == ["Q90"], "without context the prior decides"
    assert entity("Helen left Menelaus, king in Greek mythology, for Paris, who took her to Troy") == ["Q167646"]
    assert entity("Paris is a county seat in the north of Texas") == ["Q830149"]
    assert entity("The Seine runs through Paris, the capital of France") == ["Q90"]


def test_scores_are_shares_of_prior_and_context(linker, store):
    priors = {"Q90": 4.0, "Q830149": 2.0, "Q167646": 1.0}  # 1 + triples
    assert dict(linker.candidates("paris")) == pytest.approx({e: p / 7 for e, p in priors.items()})
    assert [e for e, _ in linker.candidates("Paris")] == ["Q90", "Q830149", "Q167646"]
    assert linker.candidates("nowhere") == []
    text = "Paris, Texas"
    # of the three profiles that there are, one has the word texas (in its description and its neighbour)
    weights = priors | {"Q830149": 2 * math.exp(0.5 * math.log(3))}
    expected = weights["Q830149"] / sum(weights.values())
    assert dict(linker.candidates("Paris", text, 0, 5))["Q830149"] == pytest.approx(expected)
    ((_, _, entity, score), _) = linker.link("Paris, Texas")
    assert (entity, score) == (linker.candidates("Paris", text, 0, 5)[0])
    plain = Linker.from_store(store, context=False)
    assert plain.link("Paris, Texas")[0] == (0, 5, "Q90", pytest.approx(4 / 7))


def test_given_priors_and_aliases():
    linker = Linker.from_names([("Jaguar", "animal", 1.0), ("jaguar", "car", 3.0), ("JAGUAR", "car", 2.0)])
    assert linker.link("a jaguar") == [(2, 8, "car", 0.75)]
    assert linker.link("a jaguar", min_score=0.8) == []
    exact = Linker.from_names([("Jaguar", "animal", 1.0), ("jaguar", "car", 3.0)], case="exact")
    assert exact.link("Jaguar jaguar JAGUAR") == [(0, 6, "animal", 1.0), (7, 13, "car", 1.0)]


def test_prior_counts_replace_degrees(store):
    linker = Linker.from_store(store, prior={"Q167646": 98.0}, context=False)
    assert linker.link("Paris")[0][2:] == ("Q167646", pytest.approx(99 / 101))


def test_ties_go_to_the_smaller_id():
    names = [("x y", "b", 1.0), ("x y", "a", 1.0), ("x y", "c", 1.0)]
    for order in (names, names[::-1]):
        assert Linker.from_names(order).link("x y") == [(0, 3, "a", pytest.approx(1 / 3))]


def test_skip_and_min_length(store):
    assert Linker.from_store(store, skip=["Park"]).link("a park") == []
    assert Linker.from_store(store).link("a park x") == [(2, 6, "Q22698", 1.0)]
    assert Linker.from_store(store, min_length=1).link("x") == [(0, 1, "Q40", 1.0)]


def test_a_graph_without_labels_links_ids(tmp_path):
    store = GraphStore.build([("眼睛发红", "类别", "症状")], tmp_path / "g")
    assert Linker.from_store(store).link("我眼睛发红了") == [(1, 5, "眼睛发红", 1.0)]


@pytest.mark.parametrize("context", [True, False])
def test_saving_pickling_and_versions(store, tmp_path, context):
    linker = Linker.from_store(store, context=context)
    text = "Paris, a county seat in Texas; PARIS of France"
    unsaved = pickle.loads(pickle.dumps(linker))
    linker.save(tmp_path / "linker")
    loaded = Linker.load(tmp_path / "linker")
    assert len(pickle.dumps(loaded)) < 500
    for other in (unsaved, loaded, pickle.loads(pickle.dumps(loaded))):
        assert other.link(text) == linker.link(text)
        assert (other.name, other.version, other.num_names) == ("gazetteer", linker.version, linker.num_names)
    assert list(linker.link_many([text, "", "Texas"])) == [linker.link(text), [], [(0, 5, "Q1439", 1.0)]]
    assert Linker.from_store(store, context=not context).version != linker.version
    assert Linker.from_store(store, context=context, skip=["Texas"]).version != linker.version
    with pytest.raises(WorkbenchError, match="exists already"):
        linker.save(tmp_path / "linker")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph", "linker"]


def test_wrong_inputs(tmp_path):
    with pytest.raises(WorkbenchError, match="no linker at .*prepare linker"):  # noqa: RUF043
        Linker.load(tmp_path)
    (tmp_path / "linker.json").write_text(json.dumps({"format": 0}))
    with pytest.raises(WorkbenchError, match="of format 0"):
        Linker.load(tmp_path)
    with pytest.raises(WorkbenchError, match="prior of 'e' for the name 'n' is 0"):
        Linker.from_names([("n", "e", 0)])
    with pytest.raises(WorkbenchError, match="no names to link"):
        Linker.from_names([("n", "e", 1)])


def test_words_around_a_mention():
    text = "The İstanbul Airport, the 北京 airport"
    words = Words(text)
    expected = profile_words(["the airport", "北京"])
    assert np.array_equal(words.around(4, 12), expected)
    assert np.array_equal(Words("a " * 200 + "b x").around(402, 403), profile_words(["a b"]))
    assert len(Words("").around(0, 0)) == 0


def test_fit_sums_rare_words():
    texts = [["red fish", "blue fish"], ["red bird"], ["one bird"]]
    profiles = Profiles.build([profile_words(t) for t in texts])
    context = profile_words(["red one fish"])
    idf = {"red": math.log(3 / 2), "fish": math.log(3), "one": math.log(3)}
    assert profiles.fit(0, context) == pytest.approx(idf["red"] + idf["fish"])
    assert profiles.fit(2, context) == pytest.approx(idf["one"])
    assert profiles.fit(1, profile_words([])) == 0.0
