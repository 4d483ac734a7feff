"""`prepare facts`: from a graph and templates to what `evaluate facts` reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kg.evaluation.facts.cloze_corpus import read_candidates, read_facts
from kg.evaluation.facts.clozes import check_template, cloze
from kg.graph.store import GraphStore
from pipelines.commands.knowledge.facts import facts as command
from pipelines.sources.templates import read_templates
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command as as_command
from workbench.corpora.corpus import Corpus

TRIPLES = [
    ("o", "country", "n"),
    ("b", "country", "n"),
    ("b", "country", "s"),
    ("o", "on", "f"),
    ("x", "country", "n"),
    ("b", "on", "g"),
    ("h", "deep", "h"),
]
TEXTS = {
    "o": {"label": "Oslo", "types": ["town"]},
    "b": {"label": "Bergen", "types": ["town"]},
    "n": {"label": "Norway", "types": ["country"]},
    "s": {"label": "Kingdom of Sweden", "types": ["country"]},
    "d": {"label": "Denmark", "types": ["country"]},
    "f": {"label": "Fjord"},
    "g": {"label": "Fjord"},
    "h": {"label": "Sea"},
    "x": {},
}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    texts = [{"id": name, **of} for name, of in TEXTS.items()]
    GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=texts, relation_labels={"country": "country"})
    return tmp_path / "graph"


@pytest.fixture
def prepare(graph: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    def run(templates: str = "country\t[X] is in [Y] .\n", name: str = "facts", **options: Any) -> list[dict[str, Any]]:
        (tmp_path / "templates.tsv").write_text(templates)
        reported = {"graph": graph, "templates": tmp_path / "templates.tsv", "output": tmp_path / name, "workers": 1}
        as_command(command)(**reported, **options)
        return list(Corpus.open(tmp_path / name))

    return run


def test_a_sentence_for_each_fact(prepare: Callable[..., Any], tmp_path: Path) -> None:
    records = prepare()
    first = next(r for r in records if r["meta"]["subject"] == "o")
    assert first["text"] == "Oslo is in Norway ."
    assert first["mask_spans"] == [[11, 17]]
    assert first["spans"] == [[0, 4, "o", 1.0], [11, 17, "n", 1.0]]
    assert {name: first["meta"][name] for name in ("relation", "subject", "object", "known")} == {
        "relation": "country",
        "subject": "o",
        "object": "n",
        "known": ["n"],
    }
    assert sorted((r["meta"]["subject"], r["meta"]["object"]) for r in records) == [("b", "n"), ("b", "s"), ("o", "n")]
    assert Corpus.open(tmp_path / "facts").manifest.dropped == {"ClozeReader: entity without a label": 1}
    assert json.loads((tmp_path / "facts/candidates.json").read_text()) == {
        "country": [
            {"id": "n", "label": "Norway", "count": 3},
            {"id": "s", "label": "Kingdom of Sweden", "count": 1},
        ]
    }


def test_the_evaluation_reads_it_as_it_is(prepare: Callable[..., Any], tmp_path: Path) -> None:
    """What is true of the subject does not compete, although no graph is named."""
    prepare()
    place = tmp_path / "facts"
    facts = read_facts(Corpus.open(place), read_candidates(place / "candidates.json"))["country"]
    assert facts.candidates.labels == ["Norway", "Kingdom of Sweden"]
    found = {
        (s["meta"]["subject"], "ns"[c.gold]): c.also_right for s, c in zip(facts.samples, facts.clozes, strict=True)
    }
    assert found == {("o", "n"): (), ("b", "n"): (1,), ("b", "s"): (0,)}


def test_facts_that_the_graph_lacks(prepare: Callable[..., Any], tmp_path: Path) -> None:
    """Their objects are candidates, and what the graph and other files state is known; the counts are the graph's."""
    (tmp_path / "test.txt").write_text("o\tcountry\td\no\ton\tf\nz\tcountry\tn\n")
    (tmp_path / "valid.txt").write_text("o\tcountry\ts\n")
    (record,) = prepare(triples=tmp_path / "test.txt", known=[tmp_path / "valid.txt"])
    assert record["text"] == "Oslo is in Denmark ."
    assert record["meta"]["known"] == ["d", "n", "s"]
    listed = json.loads((tmp_path / "facts/candidates.json").read_text())["country"]
    assert {each["id"]: each["count"] for each in listed} == {"d": 0, "n": 3, "s": 1}
    assert Corpus.open(tmp_path / "facts").manifest.dropped == {"ClozeReader: entity that the graph lacks": 1}


def test_candidates_of_the_objects_types(prepare: Callable[..., Any], tmp_path: Path) -> None:
    prepare(candidates="types")
    listed = json.loads((tmp_path / "facts/candidates.json").read_text())["country"]
    assert [each["id"] for each in listed] == ["d", "n", "s"]
    with pytest.raises(WorkbenchError, match="no types of the objects of 'on'"):
        prepare("on\t[X] lies on [Y] .\n", "typeless", candidates="types")


def test_entities_of_one_label_are_one_candidate(
    prepare: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A namesake of the right object does not compete with it, nor one of another that is true."""
    (tmp_path / "test.txt").write_text("o\ton\th\nb\ton\tf\n")
    records = prepare("on\t[X] lies on [Y] .\n", triples=tmp_path / "test.txt")
    assert sorted(r["meta"]["object"] for r in records) == ["f", "h"], "a rarer one of a label is asked for too"
    corpus = Corpus.open(tmp_path / "facts")
    facts = read_facts(corpus, read_candidates(tmp_path / "facts/candidates.json"))["on"]
    assert facts.candidates.labels == ["Fjord", "Sea"]
    found = {s["meta"]["object"]: (c.gold, c.also_right) for s, c in zip(facts.samples, facts.clozes, strict=True)}
    assert found == {"h": (1, (0,)), "f": (0, ())}, "b lies on g too, which is spelt as f is"
    assert facts.rank_by(facts.candidates.counts({"f": 1, "g": 1, "h": 2})) == ([1, 1.5], [1, 2])
    assert corpus.manifest.about["candidates"] == {"entities": 3, "spellings": 2, "of several entities": 1}
    assert "1 of 2 spellings of the objects are labels of several entities" in caplog.text


def test_some_facts_of_each_relation(prepare: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "asked.txt").write_text("o\tcountry\tn\nb\tcountry\tn\nb\tcountry\ts\n")
    options = {"triples": tmp_path / "asked.txt", "most": 1}
    drawn = [[r["text"] for r in prepare(name=f"f{i}", seed=i, **options)] for i in range(6)]
    assert all(len(texts) == 1 for texts in drawn)
    assert len({texts[0] for texts in drawn}) > 1


def test_the_object_may_stand_first_and_a_label_may_look_like_a_place() -> None:
    made = cloze("[Y] is home of [X] .", ("h", "r", "t"), ("a [Y] b", "x [X]"))
    assert made["text"] == "x [X] is home of a [Y] b ."
    assert made["mask_spans"] == [[0, 5]]
    assert made["spans"] == [[0, 5, "t", 1.0], [17, 24, "h", 1.0]]


@pytest.mark.parametrize("option", ["triples", "known"])
def test_triples_that_are_not_utf8(prepare: Callable[..., Any], tmp_path: Path, option: str) -> None:
    (tmp_path / "test.txt").write_bytes(b"o\tcountry\tn\no\tcountry\t\xe9\n")
    given = {"triples": tmp_path / "test.txt"} if option == "triples" else {"known": [tmp_path / "test.txt"]}
    with pytest.raises(WorkbenchError, match=r"test\.txt, line 2: not valid UTF-8"):
        prepare(**given)
    assert not (tmp_path / "facts").exists()


def test_relations_that_the_graph_lacks_are_left_out(
    prepare: Callable[..., Any], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """LAMA's file has 41 relations, and no graph has all of them."""
    wanted = prepare(name="alone")
    found = prepare("P404\t[X] plays [Y] .\ncountry\t[X] is in [Y] .\nP36\tThe capital of [X] is [Y] .\n")
    assert [each["text"] for each in found] == [each["text"] for each in wanted]
    assert "2 of 3 relations with a template are not in the graph, and left out: P404, P36" in caplog.text
    assert Corpus.open(tmp_path / "facts").manifest.about["relations"] == ["country"]


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ("cuntry\t[X] is in [Y] .", r"unknown relation 'cuntry'.*country"),
        ("country\t[X] is here .", r"has 0 times \[Y\]"),
        ("country\t[X] and [X] in [Y]", r"has 2 times \[X\]"),
        ("country", r"templates\.tsv:1: no relation with its template"),
        ("\n", "holds no template"),
        ("country\t[X] in [Y]\non\t[X] on [Y]\ncountry\t[Y] has [X]", "2 templates of the relation 'country'"),
    ],
)
def test_wrong_templates(prepare: Callable[..., Any], tmp_path: Path, templates: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        prepare(templates)
    assert not (tmp_path / "facts").exists()


def test_files_of_templates(tmp_path: Path) -> None:
    lama = [{"relation": "P19", "template": "[X] was born in [Y] .", "label": "place of birth"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lama))
    (tmp_path / "b.json").write_text('{"P19": "[X] was born in [Y] .", "P17": "[X] in [Y]"}')
    assert read_templates(tmp_path / "a.jsonl") == {"P19": "[X] was born in [Y] ."}
    assert list(read_templates(tmp_path / "b.json").items())[1:] == [("P17", "[X] in [Y]")]
    for name, text, message in [
        ("c.jsonl", '{"relation": "P19"}', "c.jsonl:1: no relation with its template"),
        ("d.json", "[1]", "is no mapping"),
        ("e.json", "{", "not JSON"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(WorkbenchError, match=message):
            read_templates(tmp_path / name)
    check_template("[X] in [Y]", "here")
