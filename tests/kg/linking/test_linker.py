"""The linker: ambiguity, context, provenance, saving."""

from __future__ import annotations

import gc
import json
import math
import pickle
import sys
import tracemalloc

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.linking import spaced_names as spaced
from kg.linking.context import Profiles, TextWords, profile_words
from kg.linking.joined_texts import JoinedTexts
from kg.linking.linker import Linker
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import seal

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
        ("FRANCE", "Q142", 0.25),
        ("Texas", "Q1439", 0.25),
        ("parc des princes", "Q40", pytest.approx(0.12)),  # the graph writes it with a capital
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
    assert linker.knows("Q90")
    assert not any(map(linker.knows, ("", "Q9", "Q900", "Z")))
    text = "Paris, Texas"
    # of the three profiles that there are, one has the word texas (in its description and its neighbour)
    weights = priors | {"Q830149": 2 * math.exp(0.5 * math.log(3))}
    expected = weights["Q830149"] / sum(weights.values())
    assert dict(linker.candidates("Paris", text, 0, 5))["Q830149"] == pytest.approx(expected)
    ((_, _, entity, score), _) = linker.link("Paris, Texas")
    assert (entity, pytest.approx(score / 0.25, rel=1e-4)) == linker.candidates("Paris", text, 0, 5)[0]
    plain = Linker.from_store(store, context=False)
    assert plain.link("Paris, Texas")[0] == (0, 5, "Q90", pytest.approx(0.25 * 4 / 7))


def test_given_priors_and_aliases():
    linker = Linker.from_names([("Jaguar", "animal", 1.0), ("jaguar", "car", 3.0), ("JAGUAR", "car", 2.0)])
    assert linker.link("a jaguar") == [(2, 8, "car", 0.1875)]
    assert linker.link("a jaguar", min_score=0.2) == []
    exact = Linker.from_names([("Jaguar", "animal", 1.0), ("jaguar", "car", 3.0)], case="exact")
    assert exact.link("Jaguar jaguar JAGUAR") == [(0, 6, "animal", 0.25), (7, 13, "car", 0.12)]


def test_prior_counts_replace_degrees(store):
    linker = Linker.from_store(store, prior={"Q167646": 98.0}, context=False)
    assert linker.link("Paris")[0][2:] == ("Q167646", pytest.approx(0.25 * 99 / 101, rel=1e-4))


def test_ties_go_to_the_smaller_id():
    names = [("x y", "b", 1.0), ("x y", "a", 1.0), ("x y", "c", 1.0)]
    for order in (names, names[::-1]):
        assert Linker.from_names(order).link("x y") == [(0, 3, "a", pytest.approx(0.12 / 3))]


def test_skip_and_min_length(store):
    assert Linker.from_store(store, skip=["Park"]).link("a park") == []
    assert Linker.from_store(store).link("a park x") == [(2, 6, "Q22698", 0.12)]
    assert Linker.from_store(store, min_length=1).link("x") == [(0, 1, "Q40", 0.12)]


def test_a_graph_without_labels_links_ids(tmp_path):
    store = GraphStore.build([("眼睛发红", "类别", "症状")], tmp_path / "g")
    assert Linker.from_store(store).link("我眼睛发红了") == [(1, 5, "眼睛发红", 0.25)]


def test_a_linker_that_was_replaced_is_not_opened_in_its_place(store, tmp_path):
    linker = Linker.from_store(store)
    linker.save(tmp_path / "linker")
    sent = pickle.dumps(linker)
    (tmp_path / "linker").rename(tmp_path / "away")
    Linker.from_store(store, skip=["Texas"]).save(tmp_path / "linker")
    with pytest.raises(WorkbenchError, match="was replaced while it was in use"):
        pickle.loads(sent)


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
    assert list(linker.link_many([text, "", "Texas"])) == [linker.link(text), [], [(0, 5, "Q1439", 0.25)]]
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


def around(text, start, end):
    _, words = TextWords(JoinedTexts([text])).around(np.array([start]), np.array([end]))
    return sorted(set(words.tolist()))


def test_words_around_a_mention():
    assert around("The İstanbul Airport, the 北京 airport", 4, 12) == profile_words(["the airport", "北京"]).tolist()
    assert around("a " * 200 + "b x", 402, 403) == profile_words(["a b"]).tolist()
    assert around("", 0, 0) == []


def test_fit_sums_rare_words():
    texts = [["red fish", "blue fish"], ["red bird"], ["one bird"]]
    profiles = Profiles.build([profile_words(t) for t in texts])
    context = profile_words(["red one fish"])
    idf = {"red": math.log(3 / 2), "fish": math.log(3), "one": math.log(3)}

    def fit(number, context):
        words, weights = profiles.of(number)
        return float(weights[np.isin(words, context)].sum())

    assert fit(0, context) == pytest.approx(idf["red"] + idf["fish"])
    assert fit(2, context) == pytest.approx(idf["one"])
    assert fit(1, profile_words([])) == 0.0


def test_function_words_are_names_in_capitals_alone():
    names = [
        ("It", "movie", 9.0),
        ("IT", "computing", 1.0),
        ("US", "country", 1.0),
        ("who", "band", 1.0),
        ("I", "one", 1.0),
    ]
    linker = Linker.from_names([*names, ("Oslo", "city", 1.0)], common=False, min_length=1)
    assert linker.link("give it to us, who is it; It is US") == [(32, 34, "country", 0.25)]
    assert [link[2] for link in linker.link("the IT of Oslo")] == ["computing", "city"]
    assert len(Linker.from_names(names, common=True).link("it is us, who")) == 3


def test_scores_say_how_likely_a_find_is_a_mention():
    names = [("Common", "rapper", 1.0), ("novel", "genre", 1.0), ("New York", "city", 1.0), ("Oslo", "town", 1.0)]
    linker = Linker.from_names(names)
    found = {entity: score for *_, entity, score in linker.link("Common novel, New York, Oslo")}
    assert found == {"rapper": 0.25, "genre": 0.12, "city": 0.65, "town": 0.25}
    assert linker.link("It is common in New York")[0][2:] == ("rapper", pytest.approx(0.12))
    assert linker.link("it is common")[0][2:] == ("rapper", 0.25), "a text without capitals says nothing by them"
    assert linker.link("Common novel, New York, Oslo", min_score=0.5) == [(14, 22, "city", 0.65)]


def test_anchors_teach_names_entities_and_how_often_a_name_is_a_link():
    names = [("Jaguar", "animal", 3.0), ("Jaguar", "car", 1.0), ("Common", "rapper", 1.0)]
    texts = [("The Jaguar is common. A big cat", [[4, 10, "car"], [24, 31, "animal"], [0, 3, "unknown"]])] * 20
    linker = Linker.from_names(names, anchors=texts)
    shares = dict(linker.candidates("jaguar"))
    assert shares == pytest.approx({"car": (20 + 0.25) / 21, "animal": 0.75 / 21})
    links = {entity: score for *_, entity, score in linker.link("A Jaguar, Common, the big cat")}
    assert links["car"] == pytest.approx((20 + 5 * 0.25) / 25 * shares["car"], rel=1e-5)
    assert links["rapper"] == pytest.approx(5 * 0.25 / 25)
    assert links["animal"] == pytest.approx((20 + 5 * 0.12) / 25, rel=1e-5), "the link text became a name"
    assert "unknown" not in links


@pytest.mark.parametrize("context", [True, False])
def test_candidates_stand_on_the_same_characters_the_best_first(store, context):
    linker = Linker.from_store(store, context=context)
    links = linker.link("Texas has a Paris", candidates=2)
    assert [link[:2] for link in links] == [(0, 5), (12, 17), (12, 17)]
    assert links[1][3] > links[2][3]
    assert links[1][2:] == (linker.link("Texas has a Paris")[1][2], pytest.approx(links[1][3]))
    assert len(linker.link("Paris", candidates=9)) == 3


def test_a_saved_linker_costs_little_memory_a_name(tmp_path):
    names = [(f"name number {i}", f"Q{i}", 1.0) for i in range(20_000)]
    Linker.from_names(names).save(tmp_path / "linker")
    Linker.load(tmp_path / "linker")  # the checksums are computed once
    tracemalloc.start()  # sees Python's and numpy's memory; the automaton has some 170 bytes a name besides
    try:
        linker = Linker.load(tmp_path / "linker")
        assert linker.link("name number 77")[0][2] == "Q77"
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0] - sys.maxunicode  # a byte for each character that there is
        assert memory / len(names) < 64
    finally:
        tracemalloc.stop()


def test_a_saved_linker_builds_nothing_to_link(tmp_path, monkeypatch):
    names = [
        "New York",
        "York",
        "((x y",
        "St. Louis",
        "saint-denis",
        "Ł\u00f3dź",
        "!!",
        "北京",
        "Oslo Lufthavn",
        "Oslo",
    ]
    linker = Linker.from_names([(name, name, 1.0) for name in names])
    linker.save(tmp_path / "linker")
    text = "In New York, York-Oslo (St Louis, ST. LOUIS); ((x y and x y: łódź!! to 北京, saint-denis, Oslo lufthavn"
    wanted = linker.link(text)
    assert len(wanted) == 10
    built, make = [], spaced.ahocorasick_rs.BytesAhoCorasick
    monkeypatch.setattr(spaced.ahocorasick_rs, "BytesAhoCorasick", lambda *_, **__: built.append(1) or make(*_, **__))
    again = Linker.load(tmp_path / "linker")
    assert again.link(text) == wanted
    assert again.candidates("st. louis") == linker.candidates("st. louis") != []
    assert pickle.loads(pickle.dumps(again)).link(text) == wanted
    assert not built
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy/linker.json").read_bytes() == (tmp_path / "linker/linker.json").read_bytes()
    long = Linker.load(tmp_path / "linker")
    assert [long.link(text) for _ in range(30)] == [wanted] * 30, "also when much was read, and the automaton is built"
    assert built == [1]
    monkeypatch.setattr(spaced, "MOST", 0)
    large = Linker.load(tmp_path / "linker")
    assert [large.link(text) for _ in range(30)] == [wanted] * 30
    assert built == [1], "of a large dictionary none is"


def test_a_linker_that_was_saved_without_its_search_is_opened(tmp_path):
    linker = Linker.from_names([("New York", "Q60", 1.0)])
    linker.save(tmp_path / "linker")
    for file in (tmp_path / "linker").glob("search_*"):
        file.unlink()
    meta = json.loads((tmp_path / "linker/linker.json").read_text())
    seal(tmp_path / "linker", "linker.json", {k: meta[k] for k in meta.keys() - {"search", "files", "digest"}})
    assert Linker.load(tmp_path / "linker").link("in New York") == linker.link("in New York") != []


def test_anchors_name_entities_that_the_graph_has_no_label_for(tmp_path):
    store = GraphStore.build([("Q1", "P1", "Q2")], tmp_path / "g", entity_texts=[{"id": "Q1", "label": "Oslo"}])
    texts = [("Rome and Bonn", [[0, 4, "Q2", 1.0], [9, 13, "Q3", 1.0]])]
    linker = Linker.from_store(store, anchors=texts)
    assert [link[:3] for link in linker.link("Oslo rome bonn")] == [(0, 4, "Q1"), (5, 9, "Q2")], "no Q3 there"
    assert linker.knows("Q2")
    assert Linker.from_store(store).knows("Q2"), "also without a name"
    assert not linker.knows("Q3")


def test_links_within_given_stretches(linker):
    text = "paris, the park of Paris, Texas"
    stretches = [(19, 31), (19, 24), (0, 5), (11, 15)]
    found = linker.link(text, inside=stretches)
    assert [(start, end) for start, end, *_ in found] == [(0, 5), (11, 15), (19, 24), (26, 31)]
    assert found[0][3] > 0.25, "a whole stretch is a mention for certain, in small letters too"
    assert found[1][3] == 1
    assert found[3] == (26, 31, "Q1439", 0.25), "a part of a stretch is as likely one as elsewhere"
    assert linker.link(text, inside=[]) == []
    assert linker.link(text, inside=[(0, 4)]) == [], "a name that continues behind a stretch is not in it"
    assert linker.link(text, 0.5, inside=stretches)[1:] == [found[1]]
    assert [link[2] for link in linker.link(text, candidates=3, inside=[(19, 24)])] != []
