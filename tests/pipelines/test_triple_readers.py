"""Readers of knowledge graphs, on tiny files."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest

from kg.graph.store import GraphStore
from pipelines.readers.formats import make_reader
from pipelines.readers.reader import Drop, MalformedError
from pipelines.readers.triples.graph import TripleLinks
from pipelines.readers.triples.ntriples import unescape
from pipelines.sources.triple_lines import read_triples
from tests.preparing import app
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus


def facts(samples):
    """The graph as a set of triples of ids."""
    return {(s["id"], t["relation"], t["tail"]) for s in samples for t in s["triples"]}


def test_tsv_gathers_by_head_and_keeps_tails(tmp_path, read):
    (tmp_path / "g.tsv").write_text("a\tr\tb\nc\tr\ta\na\tq\tc\na\tr\tb\n")
    samples = read("triples", tmp_path / "g.tsv")
    assert [s["id"] for s in samples] == ["a", "b", "c"]
    assert [(t["relation"], t["tail"]) for t in samples[0]["triples"]] == [("r", "b"), ("q", "c")]
    assert samples[1]["triples"] == []
    assert facts(samples) == {("a", "r", "b"), ("c", "r", "a"), ("a", "q", "c")}


def test_tsv_with_texts(tmp_path, json_lines, read):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    entities = json_lines("entities.jsonl", [{"id": "e1", "label": "One", "gloss": "the first", "aliases": ["I"]}])
    (tmp_path / "relations.json").write_text(json.dumps({"r": {"label": "before"}}))
    types = json_lines("types.jsonl", [{"id": "e1", "types": ["t1"]}])
    (tmp_path / "names.json").write_text(json.dumps({"t1": "number"}))
    one, two = read(
        "triples",
        tmp_path / "g.tsv",
        entities=[str(entities)],
        relations=[str(tmp_path / "relations.json")],
        types=[str(types)],
        type_names=[str(tmp_path / "names.json")],
    )
    assert (one["label"], one["description"], one["aliases"], one["types"]) == ("One", "the first", ["I"], ["t1"])
    assert one["meta"]["type_labels"] == ["number"]
    assert one["triples"] == [{"relation": "r", "relation_text": "before", "tail": "e2", "tail_text": "e2"}]
    assert two["label"] == "e2"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.tsv", "id\tlabel\tdescription\ne1\tOne\tfirst, of all\n"),
        ("e.txt", "description\tentity_id\tname\nfirst, of all\te1\tOne\n"),
        ("e.csv", 'id,label,description\ne1,One,"first, of all"\n'),
        ("e.tsv", "e1\tOne\tfirst, of all\n"),
    ],
)
def test_a_header_of_texts_is_no_entity(tmp_path, read, name, text):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    (tmp_path / name).write_text(text)
    one, two = read("triples", tmp_path / "g.tsv", entities=[str(tmp_path / name)])
    assert (one["id"], one["label"], one["description"], two["id"]) == ("e1", "One", "first, of all", "e2")


@pytest.mark.parametrize(
    ("text", "message"),
    [("e1,One\n", "names the columns e1, One; expected id"), ("id,label\ne1\n", "e.csv:2.*found 1 columns")],
)
def test_texts_of_a_csv_need_their_columns(tmp_path, read, text, message):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(WorkbenchError, match=message):
        read("triples", tmp_path / "g.tsv", entities=[str(tmp_path / "e.csv")])


def test_described_entities_of_no_triple_are_kept(tmp_path, json_lines, read):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    rows = [{"id": "e9", "label": "Nine"}, {"id": "e2", "label": "Two"}, {"id": "e8", "gloss": "eight"}, {"id": "r"}]
    entities = str(json_lines("entities.jsonl", [*rows, {"id": "e9", "aliases": ["IX"]}, {"id": "r", "label": "R"}]))
    types = str(json_lines("types.jsonl", [{"id": "e7", "types": ["t"]}]))  # of another graph
    samples = read("triples", tmp_path / "g.tsv", entities=[entities], types=[types])
    assert [s["id"] for s in samples] == ["e1", "e2", "e9", "e8"]
    assert (samples[2]["label"], samples[2]["aliases"], samples[2]["triples"]) == ("Nine", ["IX"], [])
    assert samples[3]["description"] == "eight"
    without = read("triples", tmp_path / "g.tsv", entities=[entities], described=False)
    assert [s["id"] for s in without] == ["e1", "e2"]


def test_described_entities_that_are_left_out_are_counted(tmp_path, json_lines):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    entities = [str(json_lines("entities.jsonl", [{"id": f"e{i}", "label": f"E{i}"} for i in range(9)]))]
    reader = make_reader("triples", "triples-tsv", [tmp_path / "g.tsv"], {"entities": entities, "described": False})
    found = [reader.read(record) for record in reader.records([tmp_path / "g.tsv"])]
    assert [s.reason for s in found if isinstance(s, Drop)] == ["described, but in no triple"] * 7


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": "e1", "label": 5}, "field 'label' has the wrong type .found 5; allowed: a text"),
        ({"id": "e1", "gloss": ["a"]}, "field 'gloss' has the wrong type"),
        ({"id": "e1", "aliases": "abc"}, "field 'aliases' has the wrong type .found 'abc'; allowed: a list of texts"),
        ({"id": "e1", "aliases": ["a", 5]}, "field 'aliases' has the wrong type"),
        ({"id": "e1", "types": {"t": 1}}, "field 'types' has the wrong type"),
        ({"id": ["e1"]}, "the id is no name"),
    ],
)
def test_texts_of_another_type_are_refused(tmp_path, json_lines, read, row, found):
    (tmp_path / "g.tsv").write_text("e1\tr\te2\n")
    entities = json_lines("entities.jsonl", [{"id": "e2", "label": None, "aliases": None, "types": [7]}, row])
    with pytest.raises(WorkbenchError, match=rf"entities\.jsonl:2: {found}"):
        read("triples", tmp_path / "g.tsv", entities=[str(entities)])


def test_two_labels_of_one_id_are_counted(tmp_path, json_lines):
    """Rows of the user's files; their texts override those of the source."""
    (tmp_path / "o").mkdir()
    for name, text in {"entity": "2\na 0\nb 1\n", "relation": "1\nr 0\n", "train": "1\n0 1 0\n"}.items():
        (tmp_path / "o" / f"{name}2id.txt").write_text(text)
    labels = [("a", "Alpha"), ("a", "Alpha"), ("b", "Beta"), ("a", "Aleph"), ("b", None)]
    entities = [str(json_lines("entities.jsonl", [{"id": name, "label": label} for name, label in labels]))]
    reader = make_reader("triples", "openke", [tmp_path / "o"], {"entities": entities})
    found = [reader.read(record) for record in reader.records([tmp_path / "o"])]
    assert [s["label"] for s in found if not isinstance(s, Drop)] == ["Aleph", "Beta"]
    reported = {s.reason: s.count for s in found if isinstance(s, Drop)}
    assert reported == {"a label, as a later row has another for the id": 1}


def test_texts_stay_out_of_memory(tmp_path, json_lines):
    rows = [{"id": f"e{i}", "label": f"E{i}", "description": f"{i} " * 500} for i in range(2000)]
    path = json_lines("entities.jsonl", rows)
    (tmp_path / "g.tsv").write_text("".join(f"e{i}\tr\te{i + 1}\n" for i in range(1999)))
    reader = make_reader("triples", "triples-tsv", [tmp_path / "g.tsv"], {"entities": [str(path)]})
    tracemalloc.start()
    try:
        assert sum(len(record.data["description"]) > 500 for record in reader.records([tmp_path / "g.tsv"])) == 2000
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 3
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", ["a\tb", "a\tb\tc\td", "a\t\tb"])
def test_bad_tsv_line(tmp_path, read, line):
    (tmp_path / "g.tsv").write_text(f"a\tr\tb\n{line}\n")
    with pytest.raises(WorkbenchError, match=r"g\.tsv:2: expected head<tab>relation<tab>tail"):
        read("triples", tmp_path / "g.tsv", format="triples-tsv")


def test_rows_that_give_no_triple_are_counted(tmp_path):
    (tmp_path / "g.tsv").write_bytes(b"a\tr\tb\na\tb\nb\n\xff\na\tr\tb\na\tr\tb\n")
    arguments = ["triples", str(tmp_path / "g.tsv"), "--format", "triples-tsv", "--workers", "1", "-o"]
    app([*arguments, str(tmp_path / "out"), "--on-error", "skip"], standalone_mode=False)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.records == 2
    assert corpus.manifest.dropped == {
        "TriplesTsv: expected head<tab>relation<tab>tail": 2,
        "TriplesTsv: not valid UTF-8": 1,
        "TriplesTsv: a repeated triple": 2,
    }
    with pytest.raises(WorkbenchError, match=r"g\.tsv:2: expected head.* with --on-error skip"):
        app([*arguments, str(tmp_path / "strict")], standalone_mode=False)


def test_a_bad_row_stops_before_the_rest_is_read(tmp_path, monkeypatch):
    (tmp_path / "g.tsv").write_text("a\tr\tb\nbad\nc\tr\td\n")
    arguments = ["triples", str(tmp_path / "g.tsv"), "--format", "triples-tsv"]
    added = []
    monkeypatch.setattr(TripleLinks, "add", lambda links, *triple: added.append(triple))
    with pytest.raises(WorkbenchError, match=r"g\.tsv:2"):
        app([*arguments, "--workers", "1", "-o", str(tmp_path / "out")], standalone_mode=False)
    assert added == [("a", "r", "b")]


def test_empty_graph(tmp_path, read):
    (tmp_path / "g.tsv").write_text("\n\n")
    with pytest.raises(WorkbenchError, match="no triple in"):
        read("triples", tmp_path / "g.tsv", format="triples-tsv")


def test_spo_words_have_safe_keys(tmp_path, read):
    (tmp_path / "med.spo").write_text("眼睛发红\t类别\t症状\na.b\t类别\t症状\n", "utf-8")
    samples = read("triples", tmp_path / "med.spo")
    assert facts(samples) == {("眼睛发红", "类别", "症状"), ("a.b", "类别", "症状")}
    keys = [s["key"] for s in samples]
    assert len(set(keys)) == 3
    assert all(key.replace("-", "").replace("_", "").isalnum() and key.isascii() for key in keys)
    assert samples[0]["triples"][0]["relation_text"] == "类别"


@pytest.fixture
def codex(tmp_path, json_lines):
    graph = tmp_path / "tiny"
    graph.mkdir()
    (graph / "train.txt").write_text("Q1\tP1\tQ2\n")
    (graph / "valid.txt").write_text("Q2\tP1\tQ1\n")
    json_lines("entity_text_tiny.jsonl", [{"id": "Q1", "label": "One", "description": "short", "extract": "long"}])
    json_lines("entity_types.jsonl", [{"id": "Q1", "types": ["T1"]}, {"id": "Q99", "types": []}])
    json_lines("relations.jsonl", [{"id": "P1", "label": "leads to"}])
    json_lines("types.jsonl", [{"id": "T1", "label": "number"}])
    return graph


def test_codex_layout(codex, read):
    one, two = read("triples", codex)
    assert facts([one, two]) == {("Q1", "P1", "Q2")}
    assert (one["label"], one["description"], one["types"]) == ("One", "long", ["T1"])
    assert one["triples"][0]["relation_text"] == "leads to"
    assert one["meta"]["type_labels"] == ["number"]


def test_codex_other_part(codex, read):
    assert facts(read("triples", codex, part="valid")) == {("Q2", "P1", "Q1")}
    with pytest.raises(WorkbenchError, match=r"no triples of 'test'; allowed for part: train, valid"):
        read("triples", codex, part="test")


NT = r"""# a comment
<http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P31> <http://www.wikidata.org/entity/Q5> .
<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2000/01/rdf-schema#label> "Douglas \"D\" Ad\u00e4ms"@en .
<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2000/01/rdf-schema#label> "Duglas"@de .
<http://www.wikidata.org/entity/Q42> <http://www.w3.org/2004/02/skos/core#altLabel> "DNA"@en .
<http://www.wikidata.org/entity/Q42> <http://schema.org/description> "writer"@en . # trailing
<http://www.wikidata.org/entity/Q42> <http://x.org/born> "1952"^^<http://www.w3.org/2001/XMLSchema#gYear> .
<http://www.wikidata.org/entity/Q42> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x.org/Person> .
_:b1 <http://x.org/knows> <http://www.wikidata.org/entity/Q42> .
"""


def test_ntriples(tmp_path, read):
    (tmp_path / "w.nt").write_text(NT, "utf-8")
    samples = {s["id"]: s for s in read("triples", tmp_path / "w.nt")}
    assert facts(samples.values()) == {("Q42", "P31", "Q5"), ("_:b1", "http://x.org/knows", "Q42")}
    adams = samples["Q42"]
    assert (adams["label"], adams["aliases"], adams["description"]) == ('Douglas "D" Adäms', ["DNA"], "writer")
    assert adams["types"] == ["Q5", "http://x.org/Person"]
    german = {s["id"]: s for s in read("triples", tmp_path / "w.nt", language="de")}
    assert german["Q42"]["label"] == "Duglas"


def test_bad_ntriples_line(tmp_path, read):
    (tmp_path / "w.nt").write_text("<a> <b> <c> .\n<a> <b> c .\n")
    with pytest.raises(WorkbenchError, match=r"w\.nt:2: not an N-Triples statement"):
        read("triples", tmp_path / "w.nt")


def test_unescape():
    assert unescape(r"a\tb\\n\U0001F600\'") == "a\tb\\n😀'"


def test_what_is_wrong_is_reported_and_strict_stops(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "g.tsv").write_text("a\tr\tb\na\tr\tb\na\tr\ta\nb\tr\tc\nc\t \td\n")
    rows = [
        {"id": "a", "label": "Paris", "aliases": ["", "Lutetia"], "description": "a city", "types": ["c"]},
        {"id": "b", "label": "Paris"},
        {"id": "c", "label": "  "},
        {"id": "d", "label": "Р\u0430ris"},  # Cyrillic letters in front
    ]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["triples", str(tmp_path / "g.tsv"), "--entities", str(tmp_path / "e.jsonl"), "--workers", "1"]
    arguments += ["-o", str(tmp_path / "out"), "--on-error", "skip"]
    app(arguments, standalone_mode=False)
    reported = dict(re.findall(r"│ (\w[^│]*\w) +│ +(\d+) +│", capsys.readouterr().err))
    expected = {
        "dropped, TriplesTsv: a repeated triple": "1",
        "dropped, TriplesTsv: expected head<tab>relation<tab>tail": "1",
        "triples from an entity to itself": "1",
        "entities whose label another has": "2",
        "labels with a word of two scripts": "1",
        "entities in no triple": "1",
        "entities without a label": "1",
        "entities without a description": "3",
        "entities without types": "3",
        "relations without a label": "1",
    }
    assert {name: reported.get(name) for name in expected} == expected
    records = {s["id"]: s for s in Corpus.open(tmp_path / "out")}
    assert (records["c"]["label"], records["a"]["aliases"]) == ("c", ["Lutetia"])
    with pytest.raises(WorkbenchError, match=r"a repeated triple: 1, .*another has: 2.*without --strict"):
        app([*arguments, "--strict"], standalone_mode=False)
    (tmp_path / "g.tsv").write_text("a\tr\tc\n")
    app(
        ["triples", str(tmp_path / "g.tsv"), "--workers", "1", "-o", str(tmp_path / "good"), "--strict"],
        standalone_mode=False,
    )


@pytest.mark.data
def test_real_graphs(shared, read):
    data = shared / "data"
    small = read("triples", data / "codex" / "codex-s")
    lines = [tuple(line.split("\t")) for line in (data / "codex/codex-s/train.txt").read_text().splitlines()]
    assert facts(small) == set(lines)
    assert len(small) == 2034
    assert sum(bool(s["types"]) for s in small) == 1623
    words = read("triples", data / "kbert_zh" / "kgs" / "Medical.spo")
    assert len(facts(words)) == len(set((data / "kbert_zh/kgs/Medical.spo").read_text("utf-8").splitlines()))


def test_words_are_labels_and_lack_none(tmp_path, capsys, monkeypatch):
    """The ids of K-BERT's .spo files are words; those of another source may be numbers."""
    monkeypatch.setenv("COLUMNS", "120")
    lines = "上海\t城市\t中国\n北京\t城市\t中国\n"
    reported = {}
    for name in ("g.spo", "g.tsv"):
        (tmp_path / name).write_text(lines)
        app(["triples", str(tmp_path / name), "-o", str(tmp_path / name[2:]), "--workers", "1"], standalone_mode=False)
        reported[name] = capsys.readouterr().err
    assert "entities without a label" in reported["g.tsv"]
    assert "relations without a label" in reported["g.tsv"]
    assert "without a label" not in reported["g.spo"]
    assert "entities without types" in reported["g.spo"]
    assert GraphStore.open(tmp_path / "spo").name_of("上海") == "上海"
    (tmp_path / "e.jsonl").write_text('{"id": "上海", "label": "Shanghai"}')
    command = ["triples", str(tmp_path / "g.spo"), "--entities", str(tmp_path / "e.jsonl"), "--workers", "1"]
    app([*command, "-o", str(tmp_path / "named")], standalone_mode=False)
    named = GraphStore.open(tmp_path / "named")
    assert [named.name_of(word) for word in ("上海", "北京")] == ["Shanghai", "北京"]


@pytest.mark.parametrize(
    ("line", "message"),
    [("a\tr\t", "the tail is empty"), ("\t \tb", "the head and the relation are empty"), ("a\tb", "found 2 columns")],
)
def test_what_is_wrong_with_a_line_is_reported(tmp_path, read, line, message):
    for name in ("g.tsv", "g.spo"):
        (tmp_path / name).write_text("a\tr\tb\n" * 5 + line + "\n")
        with pytest.raises(MalformedError, match=rf"expected head<tab>relation<tab>tail \({message}"):
            read("triples", tmp_path / name)
    with pytest.raises(WorkbenchError, match=rf"line 6: {message}; a triple is"):
        list(read_triples(tmp_path / "g.tsv"))
