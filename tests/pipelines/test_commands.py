"""The commands, as a user calls them."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from pathlib import Path

import networkx
import numpy as np
import pytest
from typer.testing import CliRunner

from kg.evaluation.task_options import LinkingScoring
from kg.evaluation.tasks.linking import Linking
from kg.graph.store import GraphStore
from kg.linking.linker import Linker
from pipelines.commands.app import app as commands
from pipelines.preparing.corpus_reader import SmoothedTexts
from pipelines.preparing.coverage import coverage
from pipelines.preparing.linkers import LinkerOptions
from pipelines.stages.entity_links import LinkEntities
from tests.preparing import app
from tests.test_house import imports
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
GRID = ("--backbone", "resnet10t", "--size", 64, "--grid", 2)


def prepare(*arguments: object) -> None:
    """Run `workbench prepare ...` in this process; errors come through."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        "text",
        "image-text",
        "corpus",
        "triples",
        "tokenizer",
        "linker",
        "link",
        "regions",
        "import-regions",
        "join",
        "similar-words",
        "token-counts",
        "cooccurrence",
        "entity-vocabulary",
        "answers",
    ],
)
def test_every_command_has_help_with_examples(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"workbench prepare {command}" in result.output


def test_what_was_made_is_reported(tmp_path, json_lines, caplog, monkeypatch):
    """A log line of each command that writes a file, unless the user sets another level."""
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    prepare("text", json_lines("d.jsonl", [{"text": "a city"}] * 3), "-o", tmp_path / "c", "--workers", 1)
    command = ["tokenizer", tmp_path / "c", "--vocab-size", 60, "-o"]
    prepare(*command, tmp_path / "t.json")
    assert f"tokens from {tmp_path / 'c'}: {tmp_path / 't.json'}" in caplog.text
    GraphStore.build([], tmp_path / "g", entity_texts={"Q1": {"label": "city", "types": ["Q515"]}})
    prepare("supersenses", tmp_path / "g", "--tokenizer", tmp_path / "t.json", "-o", tmp_path / "s.json")
    assert "its types, such as 'Q515', are no supersenses" in caplog.text
    assert f"{tmp_path / 's.json'}: 1 classes; 1 of" in caplog.text
    caplog.clear()
    GraphStore.build([], tmp_path / "w", entity_texts={"1-n": {"label": "city", "types": ["noun.location"]}})
    prepare("supersenses", tmp_path / "w", "--tokenizer", tmp_path / "t.json", "-o", tmp_path / "s.json")
    assert "are no supersenses" not in caplog.text
    caplog.clear()
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    monkeypatch.setenv("WORKBENCH_LOG", "WARNING")
    prepare(*command, tmp_path / "u.json")
    assert not caplog.text


def test_text_command(tmp_path, json_lines, stored):
    path = json_lines("docs.jsonl", [{"body": "cafe\u0301 one"}, {"body": "x"}])
    out = tmp_path / "out"
    prepare(
        "text", path, "-o", out, "--option", "text_field=body", "--min-length", 3, "--licence", "CC0", "--workers", 1
    )
    (sample,) = stored(out)
    assert sample["text"] == "caf\u00e9 one"
    assert sample["meta"]["licence"] == "CC0"
    assert Corpus.open(out).manifest.dropped == {"MinimumLength: too short": 1}


def test_typing_set_becomes_a_corpus(tmp_path, json_lines, stored):
    row = {"left_context_token": ["Said"], "mention_span": "he", "right_context_token": ["."], "y_str": ["person"]}
    prepare("text", json_lines("typed.jsonl", [row]), "-o", tmp_path / "out", "--workers", 1)
    (sample,) = stored(tmp_path / "out")
    assert (sample["text"], sample["mention"], sample["types"]) == ("Said he .", [5, 7], ["person"])


def test_media_become_a_corpus(tmp_path, json_lines, tar, photograph, stored):
    wav = b"RIFF\x04\x00\x00\x00WAVE"
    tar(
        "images.tar", {"a.jpg": photograph(1), "b.webp": photograph(2, format="WEBP"), "c.jpg": b"<html>", "d.wav": wav}
    )
    rows = [{"media": {"left": "a.jpg", "right": other}, "sentence": "Two."} for other in ("b.webp", "c.jpg", "d.wav")]
    path = json_lines("two.jsonl", [*rows, {"media": {"left": "a.jpg", "right": "lost.jpg"}, "sentence": "x"}])
    prepare("image-text", path, "-o", tmp_path / "out", "--option", "fields={captions: sentence}", "--workers", 1)
    first, second = stored(tmp_path / "out")
    assert (first["media"]["left"], first["media"]["right"][:2]) == (photograph(1), b"\xff\xd8")
    assert (second["media"]["right"], second["captions"]) == (wav, ["Two."])
    dropped = Corpus.open(tmp_path / "out").manifest.dropped
    assert dropped == {"MediaJsonl: medium not found": 1, "CheckMedia: a medium: a web page, not an image": 1}


def test_all_texts_are_linked(tmp_path, json_lines, graph, stored):
    row = {"text": "met bob", "second": "Bob?", "choices": ["ann", "bob"], "translations": {"en": "bob", "de": "er"}}
    prepare("text", json_lines("d.jsonl", [row]), "-o", tmp_path / "c", "--workers", 1)
    prepare("link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l", "--workers", 1)
    (sample,) = stored(tmp_path / "l")
    assert sample["second_spans"] == [[0, 3, "e2", 0.25]]
    assert sample["choice_spans"][1] == sample["translation_spans"]["en"] == [[0, 3, "e2", 0.25]]
    assert sample["translation_spans"]["de"] == []
    stage = LinkEntities.of(Linker.from_store(GraphStore.open(graph)))
    assert coverage(Corpus.open(tmp_path / "l"), stage).all.mentions == 5


def test_names_are_found_between_signs_that_spaces_part(tmp_path, json_lines, stored):
    """A tagging set of Chinese; names that a word of the list goes over the end of are none."""
    texts = {"a": {"label": "头痛"}, "b": {"label": "CT检查"}, "c": {"label": "研究"}}
    GraphStore.build([("a", "r", "b"), ("b", "r", "c")], tmp_path / "graph", entity_texts=texts)
    (tmp_path / "words.txt").write_text("研究生 5\n头痛 5\n")
    row = {"text": "头 痛 做 C T 检 查 研 究 生", "tags": "B-x I-x O B-y I-y I-y I-y O O O"}
    prepare("text", json_lines("d.jsonl", [row]), "-o", tmp_path / "c", "--workers", 1)
    link = ("link", tmp_path / "c", "--graph", tmp_path / "graph", "--words", tmp_path / "words.txt", "--workers", 1)
    prepare(*link, "-o", tmp_path / "plain")
    assert stored(tmp_path / "plain")[0]["spans"] == []
    prepare(*link, "--signs", "-o", tmp_path / "signs")
    (sample,) = stored(tmp_path / "signs")
    assert [(sample["text"][s:e], entity) for s, e, entity, _ in sample["spans"]] == [
        ("头 痛", "a"),
        ("C T 检 查", "b"),
    ]
    prepare(*link, "--signs", "--inside", "tags", "-o", tmp_path / "inside")
    assert stored(tmp_path / "inside")[0]["spans"] == []  # each tag is a sign's


def test_facts_with_qualifiers_become_a_corpus_and_a_graph(tmp_path, json_lines, stored):
    fact = {"relation": "P26", "tail": "Q2", "qualifiers": [{"relation": "P580", "tail": "1900"}]}
    prepare("triples", json_lines("f.jsonl", [{"id": "Q1", "triples": [fact]}]), "-o", tmp_path / "g", "--workers", 1)
    assert stored(tmp_path / "g")[0]["triples"] == [fact]
    assert GraphStore.open(tmp_path / "g" / "graph").num_triples == 1


def test_pairs_that_differ_in_one_text_are_no_duplicates(tmp_path, json_lines, stored):
    rows = [
        {"text": "a man", "second": "eats"},
        {"text": "a man", "second": "sleeps"},
        {"text": "a  man", "second": "eats"},
    ]
    prepare("text", json_lines("d.jsonl", rows), "-o", tmp_path / "c", "--dedupe", "--workers", 1)
    assert [sample["second"] for sample in stored(tmp_path / "c")] == ["eats", "sleeps"]


def test_image_text_command_counts_bad_images(tmp_path, json_lines, tar, photograph, stored):
    images = {
        "a.jpg": photograph(1, (80, 60)),
        "page.jpg": b"<html>gone</html>",
        "cut.jpg": photograph(2, (200, 200))[:5000],
        "blank.jpg": photograph(3),
    }
    tar("images.tar", images)
    rows = [{"image": name, "caption": "" if name == "blank.jpg" else "words"} for name in [*images, "gone.jpg"]]
    out = tmp_path / "out"
    prepare("image-text", json_lines("captions.jsonl", rows), "-o", out, "--resize", 30, "--workers", 1)
    (sample,) = stored(out)
    assert (sample["key"], sample["captions"]) == ("a", ["words"])
    assert Corpus.open(out).manifest.dropped == {
        "CaptionsJsonl: image not found": 1,
        "CheckImage: a web page, not an image": 1,
        "CheckImage: damaged image": 1,
        "clean_captions: no caption": 1,
    }


def test_images_that_have_labels_alone_become_a_corpus_and_one_of_it(tmp_path, json_lines, tar, photograph, stored):
    tar("images.tar", {f"{name}.jpg": photograph(number) for number, name in enumerate("abc")})
    rows = [{"image": "a.jpg", "labels": {"animal": "dog"}}, {"image": "b.jpg", "labels": {"animal": "cat"}}]
    path = json_lines("labelled.jsonl", [*rows, {"image": "c.jpg"}])
    form = ("--format", "media-jsonl", "--option", "media_field=image")
    prepare("image-text", path, *form, "-o", tmp_path / "raw", "--workers", 1)
    prepare("corpus", tmp_path / "raw", "-o", tmp_path / "again", "--workers", 1)
    for name in ("raw", "again"):
        assert [sample["labels"]["animal"] for sample in stored(tmp_path / name)] == ["dog", "cat"]
    assert Corpus.open(tmp_path / "raw").manifest.dropped == {"clean_captions: no caption": 1}


def test_copies_of_an_image_stay_on_one_side_of_a_split(tmp_path, json_lines, tar, photograph):
    tar("images.tar", {f"i{n}.jpg": photograph(n // 2) for n in range(40)})
    path = json_lines("captions.jsonl", [{"image": f"i{n}.jpg", "caption": "x"} for n in range(40)])
    prepare("image-text", path, "-o", tmp_path / "out", "--split", "dev=0.4", "--workers", 1)
    sides = []
    for name in ("out", "out-dev"):
        corpus = Corpus.open(tmp_path / name)
        sides.append({corpus.read(0, r)["meta"]["sha256"] for r in range(corpus.records)})
    assert sum(map(len, sides)) == 20
    assert all(sides)


def test_triples_command_builds_the_graph_of_the_corpus_alone(tmp_path, stored):
    lines = [f"e{i}\tr{i % 3}\te{(i * 7) % 50}" for i in range(200)]
    (tmp_path / "g.tsv").write_text("\n".join(f"e{i % 50}" + line[line.index("\t") :] for i, line in enumerate(lines)))
    out = tmp_path / "out"
    prepare("triples", tmp_path / "g.tsv", "-o", out, "--split", "held-out=0.3", "--workers", 1)
    train, held_out = ({s["id"]: s["triples"] for s in stored(tmp_path / n)} for n in ("out", "out-held-out"))
    assert train.keys() | held_out.keys() == {f"e{i}" for i in range(50)}
    assert not train.keys() & held_out.keys()
    store = GraphStore.open(out / "graph")
    assert store.num_triples == sum(map(len, train.values()))
    prepare("triples", tmp_path / "g.tsv", "-o", out, "--split", "held-out=0.3", "--workers", 1)  # a rerun does nothing


@pytest.fixture
def graph(tmp_path, json_lines):
    """A triples corpus about Ann, Bob and Springfield."""
    (tmp_path / "g.tsv").write_text("e1\tlives in\te3\ne2\tlives in\te3\n")
    rows = [{"id": "e1", "label": "Ann"}, {"id": "e2", "label": "Bob", "aliases": ["Robert"]}]
    texts = json_lines("entities.jsonl", [*rows, {"id": "e3", "label": "Springfield"}])
    prepare("triples", tmp_path / "g.tsv", "--entities", texts, "-o", tmp_path / "graph", "--workers", 1)
    return tmp_path / "graph"


def test_graph_command_says_what_is_near_and_what_is_lacking(tmp_path, graph):
    prepare("graph", graph, "e1", "--hops", 2, "--graphml", tmp_path / "near.graphml")
    assert {*networkx.read_graphml(tmp_path / "near.graphml")} == {"e1", "e2", "e3"}
    shown = CliRunner().invoke(app, ["graph", str(graph), "e1", "--hops", "2"]).output
    assert "Bob" in shown
    counts = CliRunner().invoke(app, ["graph", str(graph)]).output
    assert "triples of Springfield, the most" in counts
    with pytest.raises(WorkbenchError, match="--hops, --graphml and --draw start from entities"):
        prepare("graph", graph, "--hops", 2)


def test_link_command_on_texts(tmp_path, json_lines, graph, stored):
    rows = [{"text": "Ann met Robert in Springfield."}, {"text": "nobody"}]
    prepare("text", json_lines("d.jsonl", rows), "-o", tmp_path / "c", "--workers", 1)
    prepare("link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l", "--workers", 2)
    linked, empty = stored(tmp_path / "l")
    found = [(linked["text"][a:b], entity, score) for a, b, entity, score in linked["spans"]]
    assert found == [("Ann", "e1", 0.25), ("Robert", "e2", 0.25), ("Springfield", "e3", 0.25)]
    assert empty["spans"] == []
    assert linked["meta"]["source"] == "d.jsonl"
    assert linked["meta"]["linker"]["name"] == "gazetteer"
    about = Corpus.open(tmp_path / "l").manifest.about
    assert about["linker"] == linked["meta"]["linker"]
    assert [graph["name"] for graph in about["graphs"]] == ["graph"]
    prepare("link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l")  # a rerun does nothing
    with pytest.raises(WorkbenchError, match=r"inputs: stages\.LinkEntities\.version was '[^']+', is '[^']+'\. Choose"):
        prepare("link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l", "--case", "exact")


def test_link_command_on_captions_with_a_saved_linker(tmp_path, json_lines, tar, photograph, graph, stored):
    tar("images.tar", {"a.jpg": photograph(1)})
    path = json_lines("captions.jsonl", [{"image": "a.jpg", "captions": ["a dog", "bob and ann"]}])
    prepare("image-text", path, "-o", tmp_path / "c", "--workers", 1)
    (tmp_path / "skip.txt").write_text("Ann\n")
    prepare("linker", graph, "-o", tmp_path / "linker", "--skip", tmp_path / "skip.txt")
    prepare("link", tmp_path / "c", "--linker", tmp_path / "linker", "-o", tmp_path / "l", "--workers", 1)
    (sample,) = stored(tmp_path / "l")
    assert sample["caption_spans"] == [[], [[0, 3, "e2", 0.25]]]
    assert sample["image"] == photograph(1)


def test_a_linker_notes_the_texts_that_it_has_learned_from(tmp_path, json_lines, graph, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("seen", "other"):
        rows = [{"text": f"Ann of {name}", "spans": [[0, 3, "e1", 1.0]]}]
        prepare("text", json_lines(f"{name}.jsonl", rows), "-o", tmp_path / name, "--workers", 1)
    prepare("linker", graph, "-o", tmp_path / "linker", "--anchors", tmp_path / "seen")
    reported = {
        name: evaluate(Linking(), LinkingScoring(run=tmp_path / "linker", corpus=str(tmp_path / name))).variant
        for name in ("seen", "other")
    }
    assert reported["seen"] == f"{reported['other']}; the linker has seen these links (--anchors)"


def test_link_keeps_gold_links_and_says_the_coverage(tmp_path, json_lines, graph, stored):
    rows = [{"text": "Ann met Robert Ann", "spans": [[0, 3, "gold", 1.0], [4, 10, "gold", 1.0]]}, {"text": "nobody"}]
    prepare("text", json_lines("d.jsonl", rows), "-o", tmp_path / "c", "--workers", 1)
    arguments = ["link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l", "--keep", "--workers", 1]
    said = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False).output
    linked, empty = stored(tmp_path / "l")
    assert linked["spans"] == [[0, 3, "gold", 1.0], [4, 10, "gold", 1.0], [15, 18, "e1", 0.25]]
    assert empty["spans"] == []
    assert linked["meta"]["linker"]["given"] == "keep"
    reported = dict(line.strip("│ ").split(" │ ") for line in said.splitlines() if line.count("│") == 3)
    reported = {name.strip(): value.strip() for name, value in reported.items()}
    assert reported["records"] == "2"
    assert reported["with a link"] == "1 (50.0 %)"
    assert reported["mentions per 1,000 characters"] == "125.0"
    assert reported["linked to an entity that the linker knows"] == "1 (33.3 %)"
    assert reported["linked"] == "3 (100.0 %)"
    assert reported["NIL"] == "0 (0.0 %)"
    assert reported["mean score of a link (0 to 1)"] == "0.750"


def test_links_that_are_there_say_which_candidate_is_right_and_another_graph_is_next_to(tmp_path, json_lines, stored):
    (tmp_path / "names.tsv").write_text("Ann\te1\t3\nAnn\te2\t1\nRoe\te3\t1\nBob\te4\t1\n")
    (tmp_path / "others.tsv").write_text("Ann met\tw1\t1\nRoe\tw2\t1\n")
    for name in ("names", "others"):
        prepare("linker", "-o", tmp_path / f"{name}-linker", "--names", tmp_path / f"{name}.tsv")
    rows = [{"text": "Ann met Roe, Bob", "spans": [[0, 3, "e2", 1.0], [8, 11, "e9", 1.0]]}, {"text": "Roe"}]
    prepare("text", json_lines("d.jsonl", rows), "-o", tmp_path / "c", "--workers", 1)
    linker = ["--linker", tmp_path / "names-linker", "--candidates", 2, "--workers", 1]
    prepare("link", tmp_path / "c", *linker, "--supervise", "-o", tmp_path / "l")
    reported, other = stored(tmp_path / "l")
    assert [[*span[:3], *span[4:]] for span in reported["spans"]] == [
        [0, 3, "e1", {"right": 0}],
        [0, 3, "e2", {"right": 1}],
        [8, 11, "e3", {"right": 0}],
        [13, 16, "e4"],
    ]
    assert [span[:3] + span[4:] for span in other["spans"]] == [[0, 3, "e3"]]
    second = ["--linker", tmp_path / "others-linker", "--alongside", "--workers", 1]
    prepare("link", tmp_path / "l", *second, "-o", tmp_path / "both")
    both, _ = stored(tmp_path / "both")
    assert [span[2] for span in both["spans"]] == ["e1", "e2", "w1", "e3", "w2", "e4"]
    assert both["spans"][1] == reported["spans"][1]
    with pytest.raises(WorkbenchError, match="--keep and --alongside contradict"):
        prepare("link", tmp_path / "l", *second, "--keep", "-o", tmp_path / "x")
    prepare("text", json_lines("e.jsonl", [{"text": "Roe"}]), "-o", tmp_path / "plain", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"--supervise: .* has no links; needed"):
        prepare("link", tmp_path / "plain", *linker, "--supervise", "-o", tmp_path / "x")


def test_candidates_anchors_and_priors_by_command(tmp_path, json_lines, stored):
    (tmp_path / "g.tsv").write_text("e1\tr\te3\ne2\tr\te3\ne2\tq\te3\n")
    texts = json_lines("entities.jsonl", [{"id": e, "label": "Bob"} for e in ("e1", "e2")])
    prepare("triples", tmp_path / "g.tsv", "--entities", texts, "-o", tmp_path / "g", "--workers", 1)
    anchors = json_lines("a.jsonl", [{"text": "Bobby and Bob", "spans": [[0, 5, "e1", 1.0], [10, 13, "e1", 1.0]]}] * 9)
    for name, rows in (("a", anchors), ("c", json_lines("c.jsonl", [{"text": "Bob, Bobby"}]))):
        prepare("text", rows, "-o", tmp_path / name, "--workers", 1)
    (tmp_path / "counts.tsv").write_text("e\u20283\t1\ne1\t50\n")

    def linked(name, *more):
        prepare("link", tmp_path / "c", "--graph", tmp_path / "g", "-o", tmp_path / name, "--workers", 1, *more)
        return [span[:3] for span in stored(tmp_path / name)[0]["spans"]]

    assert linked("plain") == [[0, 3, "e2"]]
    assert linked("two", "--candidates", 2) == [[0, 3, "e2"], [0, 3, "e1"]]
    assert linked("priors", "--priors", tmp_path / "counts.tsv") == [[0, 3, "e1"]]
    assert linked("anchors", "--anchors", tmp_path / "a") == [[0, 3, "e1"], [5, 10, "e1"]]
    (tmp_path / "counts.tsv").write_text("e1\t5\ne2 7\n")
    with pytest.raises(WorkbenchError, match=r"counts.tsv, line 2: 'e2 7' is not ENTITY<tab>COUNT"):
        linked("bad", "--priors", tmp_path / "counts.tsv")
    with pytest.raises(WorkbenchError, match="the corpus has no links"):
        linked("bad", "--anchors", tmp_path / "c")
    with pytest.raises(WorkbenchError, match="its 2 links are candidates of a linker, and none is marked as correct"):
        linked("bad", "--anchors", tmp_path / "two")
    foreign = json_lines("f.jsonl", [{"text": "Bob", "spans": [[0, 3, "Q1", 1.0]]}])
    prepare("text", foreign, "-o", tmp_path / "f", "--workers", 1)
    with pytest.raises(WorkbenchError, match="links are to none of the linker's 3 entities: theirs are as 'Q1'"):
        linked("bad", "--anchors", tmp_path / "f")


def test_coverage_by_source_with_nil_and_ambiguous_mentions(tmp_path, json_lines, stored):
    (tmp_path / "names.tsv").write_text("Ann\te1\t3\nAnn\te2\t1\nRobert Roe\te3\t1\n")
    prepare("linker", "-o", tmp_path / "linker", "--names", tmp_path / "names.tsv")
    one = json_lines("one.jsonl", [{"text": "Ann met Robert Roe"}, {"text": "nobody"}])
    two = json_lines("two.jsonl", [{"text": "Robert Roe"}])
    prepare("text", one, two, "-o", tmp_path / "c", "--workers", 1)
    prepare("link", tmp_path / "c", "--linker", tmp_path / "linker", "-o", tmp_path / "l", "--min-score", 0.5)
    linked = Corpus.open(tmp_path / "l")
    found = coverage(linked, LinkEntities.of(Linker.load(tmp_path / "linker"), 0.5))
    assert list(found.by_source) == ["one.jsonl", "two.jsonl"]
    whole = found.all
    assert (whole.records, whole.linked_records, whole.linked, whole.nil, whole.ambiguous) == (3, 2, 2, 1, 1)
    first = found.by_source["one.jsonl"]
    assert (first.mentions, first.linked, first.nil, first.ambiguous, first.entities) == (2, 1, 1, 1, {"e3"})


def test_links_inside_given_stretches_alone(tmp_path, json_lines, graph, stored):
    """Named entities that are given: the whole stretch, or a name in it; the rest of the text is left alone."""
    row = {"text": "Ann met old Robert and Ann Lee", "tags": [[8, 18, "PER"], [23, 30, "PER"]], "second": "Ann"}
    prepare("text", json_lines("d.jsonl", [row]), "-o", tmp_path / "c", "--workers", 1)
    arguments = ["link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "l", "--inside", "tags", "--workers", 1]
    said = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False).output
    (linked,) = stored(tmp_path / "l")
    assert [span[:2] for span in linked["spans"]] == [[12, 18], [23, 26]]
    assert linked["second_spans"] == []
    assert linked["meta"]["linker"]["inside"] == "tags"
    assert "NIL" in said
    with pytest.raises(WorkbenchError, match=r"--inside marks: .* allowed: tags"):
        prepare("link", tmp_path / "c", "--graph", graph, "-o", tmp_path / "m", "--inside", "marks")


def test_linkers_of_given_names(tmp_path, json_lines, graph, caplog):
    """By a table, by a spaCy knowledge base; a graph takes the names of its own entities alone."""
    from spacy.kb import InMemoryLookupKB
    from spacy.vocab import Vocab

    names = tmp_path / "names.tsv"
    names.write_text("Bobby\te2\t3\nBobby\te2\t1\nBobby\te9\t1\n")
    prepare("linker", "-o", tmp_path / "alone", "--names", names)
    assert Linker.load(tmp_path / "alone").candidates("bobby") == [("e2", 0.8), ("e9", pytest.approx(0.2))]
    prepare("linker", graph, "-o", tmp_path / "graphs", "--names", names)
    assert Linker.load(tmp_path / "graphs").candidates("Bobby") == [("e2", 1.0)]
    assert f"--names {names}: 1 of 3 rows are of entities that the graph lacks" in caplog.text
    (tmp_path / "foreign.tsv").write_text("Q1\t4\n")
    names.write_text("Bobby\tQ1\t3\n")
    for option, place in (("--names", names), ("--priors", tmp_path / "foreign.tsv")):
        reported = rf"{option} .*: none of its 1 rows has an entity of the graph .* like 'Q1', the graph's like 'e\d'"
        with pytest.raises(WorkbenchError, match=reported):
            prepare("linker", graph, "-o", tmp_path / "bad", option, place)
    with pytest.raises(WorkbenchError, match="graphs exists already"):  # before anything is read
        prepare("linker", tmp_path / "gone", "-o", tmp_path / "graphs")
    names.write_text("Bobby\te2\t3\nBobby\te2\t1\nBobby\te9\t1\n")
    kept = InMemoryLookupKB(Vocab(), entity_vector_length=2)
    for entity in ("e1", "e9"):
        kept.add_entity(entity, freq=1, entity_vector=[0, 1])
    kept.add_alias("Bobby", ["e1", "e9"], [0.75, 0.25])
    kept.to_disk(tmp_path / "kb")
    prepare("linker", "-o", tmp_path / "both", "--names", names, "--knowledge-base", tmp_path / "kb")
    shares = dict(Linker.load(tmp_path / "both").candidates("Bobby"))
    assert shares == pytest.approx({"e2": 4 / 6, "e9": 1.25 / 6, "e1": 0.75 / 6})
    (tmp_path / "kb" / "contents").write_bytes((1 << 40).to_bytes(8, "little") * 2)
    for option, place, message in (
        ("--knowledge-base", tmp_path, "there is no knowledge base"),
        ("--knowledge-base", tmp_path / "kb", "damaged or cut off"),
        ("--names", tmp_path / "gone", "no such file"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            prepare("linker", "-o", tmp_path / "bad", option, place)
    for wrong in ("Bob\te1\t0\n", "Bob\te1\n", "Bob\te1\tnan\n", "\te1\t2\n", "Bob\t\t2\n"):
        names.write_text(wrong)
        with pytest.raises(WorkbenchError, match=r"line 1: .*NAME<tab>ENTITY<tab>COUNT"):
            prepare("linker", "-o", tmp_path / "bad", "--names", names)
    names.write_text("")
    with pytest.raises(WorkbenchError, match=r"--names .*: the file has no name"):
        prepare("linker", "-o", tmp_path / "bad", "--names", names)
    words = tmp_path / "words.txt"
    words.write_text("上海 40 ns\n海水\t5\n")
    names.write_text("海水\te1\t1\n")
    prepare("linker", "-o", tmp_path / "zh", "--names", names, "--words", words)
    assert [Linker.load(tmp_path / "zh").link(text) != [] for text in ("上海水", "海水")] == [False, True]
    for wrong, message in (("上海\n", "line 1: .*WORD COUNT"), ("", "no word in it")):
        words.write_text(wrong)
        with pytest.raises(WorkbenchError, match=message):
            prepare("linker", "-o", tmp_path / "bad", "--names", names, "--words", words)
    with pytest.raises(WorkbenchError, match="without a graph a linker is built from --names or --knowledge-base"):
        prepare("linker", "-o", tmp_path / "bad")


def test_bad_link_options(tmp_path, json_lines, graph):
    prepare("text", json_lines("d.jsonl", [{"text": "x"}]), "-o", tmp_path / "c", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"give one of --graph .* and --linker"):
        prepare("link", tmp_path / "c", "-o", tmp_path / "l")
    with pytest.raises(WorkbenchError, match="--min-score = 2"):
        prepare("link", tmp_path / "c", "-o", tmp_path / "l", "--graph", graph, "--min-score", 2)
    with pytest.raises(WorkbenchError, match="has no text to link"):
        prepare("link", graph, "-o", tmp_path / "l", "--graph", graph)
    with pytest.raises(WorkbenchError, match="no linker"):
        prepare("link", tmp_path / "c", "-o", tmp_path / "l", "--linker", tmp_path / "gone")
    assert not (tmp_path / "l").exists()


NOT_DEFAULT = {
    "case": ("--case", "exact"),
    "min_length": ("--min-length", 5),
    "skip": ("--skip", "skip.txt"),
    "common": ("--common",),
    "names": ("--names", "names.tsv"),
    "knowledge_base": ("--knowledge-base", "kb"),
    "anchors": ("--anchors", "linked"),
    "priors": ("--priors", "priors.tsv"),
    "words": ("--words", "nosuchfile.txt"),
    "context": ("--no-context",),
}


def test_a_saved_linker_takes_no_option_that_makes_one(tmp_path, json_lines, graph, stored):
    assert NOT_DEFAULT.keys() == {field.name for field in dataclasses.fields(LinkerOptions)}
    prepare("text", json_lines("d.jsonl", [{"text": "Bob"}]), "-o", tmp_path / "c", "--workers", 1)
    prepare("linker", graph, "-o", tmp_path / "linker")
    link = ("link", tmp_path / "c", "--linker", tmp_path / "linker", "-o", tmp_path / "l", "--workers", 1)
    for option in NOT_DEFAULT.values():
        with pytest.raises(
            WorkbenchError, match=f"^{option[0]} cannot change the saved linker .* `prepare linker`.*--graph"
        ):
            prepare(*link, *option)
    with pytest.raises(WorkbenchError, match=r"^--case, --min-length cannot change"):
        prepare(*link, "--min-length", 5, "--case", "exact")
    assert not (tmp_path / "l").exists()
    prepare(*link, "--min-score", 0.1, "--candidates", 2, "--signs", "--case", "ignore")
    assert [span[2] for span in stored(tmp_path / "l")[0]["spans"]] == ["e2"]


def test_tokenizer_command(tmp_path, json_lines):
    prepare(
        "text",
        json_lines("d.jsonl", [{"text": "low lower lowest newer wider " * 20}]),
        "-o",
        tmp_path / "c",
        "--workers",
        1,
    )
    prepare("tokenizer", tmp_path / "c", "-o", tmp_path / "tokenizer.json", "--vocab-size", 60)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.vocab_size <= 60
    assert tokenizer.tokens(tokenizer.encode("lower").ids) == ["lower"]


def test_small_corpora_count_for_more_than_their_size(tmp_path, json_lines):
    texts = {"large": ["the cat sat"] * 90, "small": ["ein hund"] * 10}
    for name, each in texts.items():
        path = json_lines(f"{name}.jsonl", [{"text": text} for text in each])
        prepare("text", path, "-o", tmp_path / name, "--workers", 1)
    corpora = [Corpus.open(tmp_path / name) for name in texts]
    sizes = {name: sum(map(len, each)) for name, each in texts.items()}
    for exponent in (0.0, 0.5, 1.0):
        found = list(SmoothedTexts(corpora, exponent))
        assert found == list(SmoothedTexts(corpora, exponent))
        german = sum(len(text) for text in found if text.startswith("e"))
        share = sizes["small"] ** exponent / sum(size**exponent for size in sizes.values())
        assert german == round(share * sum(sizes.values()))
        assert sum(map(len, found)) == sum(sizes.values())
    small = ["tokenizer", tmp_path / "large", tmp_path / "small", "-o", tmp_path / "t.json", "--vocab-size", 60]
    prepare(*small, "--size-exponent", 0.5)
    with pytest.raises(WorkbenchError, match="--size-exponent = 2"):
        prepare(*small, "--size-exponent", 2)


def test_tokens_are_added_behind_the_others(tmp_path, json_lines):
    prepare("text", json_lines("d.jsonl", [{"text": "low lower lowest"}] * 4), "-o", tmp_path / "c", "--workers", 1)
    prepare("tokenizer", tmp_path / "c", "-o", tmp_path / "t.json", "--vocab-size", 60)
    start = ("tokenizer", "--start", tmp_path / "t.json")
    prepare(*start, "--add", "[HD]", "--add", "[TL]", "-o", tmp_path / "marked.json")
    before, after = (Tokenizer.load(tmp_path / name) for name in ("t.json", "marked.json"))
    assert after.vocabulary == before.vocabulary | {"[HD]": before.vocab_size, "[TL]": before.vocab_size + 1}
    assert after.tokens(after.encode("[HD] Low [HD]").ids) == ["[HD]", "low", "[HD]"]
    assert after.special_ids.tolist() == before.special_ids.tolist()
    assert after.roles == before.roles
    with pytest.raises(WorkbenchError, match=r"'\[HD\]' is in the vocabulary already"):
        after.with_tokens(["[HD]"])
    for wrong in (start, ("tokenizer",), (*start, tmp_path / "c")):
        with pytest.raises(WorkbenchError, match="name corpora to train a tokenizer on, or a tokenizer"):
            prepare(*wrong, "-o", tmp_path / "x.json")


def test_a_tokenizer_is_trained_on_translations(tmp_path, json_lines):
    path = json_lines("d.jsonl", [{"translations": {"en": "low", "de": "tief"}}] * 20)
    prepare("text", path, "-o", tmp_path / "c", "--workers", 1)
    prepare("tokenizer", tmp_path / "c", "-o", tmp_path / "tokenizer.json", "--vocab-size", 60)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert [tokenizer.tokens(tokenizer.encode(word).ids) for word in ("low", "tief")] == [["low"], ["tief"]]


def test_regions_command(tmp_path, json_lines, tar, photograph, stored, caplog):
    from vision.images.decoding import decode  # the vision extra

    assert decode
    tar("images.tar", {f"i{n}.jpg": photograph(n) for n in range(3)})
    path = json_lines("captions.jsonl", [{"image": f"i{n}.jpg", "caption": "x"} for n in range(3)])
    prepare("image-text", path, "-o", tmp_path / "c", "--workers", 1)
    prepare("regions", tmp_path / "c", "-o", tmp_path / "r", *GRID, "--device", "cpu")
    assert caplog.text.count("the backbone resnet10t has random weights") == 1
    before, after = stored(tmp_path / "c"), stored(tmp_path / "r")
    assert [s["key"] for s in after] == [s["key"] for s in before]
    assert [s["image"] for s in after] == [s["image"] for s in before]
    regions = after[0]["regions"]
    assert (regions["features"].shape, regions["boxes"].shape) == ((4, 512), (4, 4))
    assert np.isfinite(regions["features"]).all()
    backbone = after[0]["meta"]["backbone"]
    assert backbone.startswith("timm:resnet10t@")
    manifest = Corpus.open(tmp_path / "r").manifest
    assert manifest.about["backbone"] == backbone
    prepare("regions", tmp_path / "c", "-o", tmp_path / "r", *GRID, "--batch-size", 1)
    assert Corpus.open(tmp_path / "r").manifest == manifest, "the very corpus, wherever it is computed"


def test_regions_of_a_downloaded_set_with_webp_and_a_broken_image(tmp_path, tar, photograph, stored):
    images = {"a.webp": photograph(format="WEBP"), "b.jpg": photograph()[:99], "c.png": photograph(format="PNG")}
    members = {name: data for file in images for name, data in ((file, images[file]), (f"{file[0]}.txt", b"caption"))}
    index_foreign([tar("set.tar", members)], tmp_path / "c")
    with pytest.raises(WorkbenchError, match=r"image 'b': the image is damaged .*--on-error skip"):
        prepare("regions", tmp_path / "c", "-o", tmp_path / "r", *GRID)
    prepare("regions", tmp_path / "c", "-o", tmp_path / "r", *GRID, "--on-error", "skip")
    assert [s["image"] for s in stored(tmp_path / "r")] == [images["a.webp"], images["c.png"]]
    [shard] = Corpus.open(tmp_path / "r").shards
    assert shard.dropped == {"RegionFeatures: undecodable image": 1}


def test_regions_of_a_text_corpus_are_refused(tmp_path, json_lines):
    prepare("text", json_lines("d.jsonl", [{"text": "words"}]), "-o", tmp_path / "c", "--workers", 1)
    with pytest.raises(WorkbenchError, match="kind text; regions need images"):
        prepare("regions", tmp_path / "c", "-o", tmp_path / "r", "--backbone", "resnet10t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--min-letters", "2"], "--min-letters = 2.0; allowed: a number from 0, at most 1"),
        (["--option", "text_field"], "is not NAME=VALUE"),
        (["--option", "meta_fields=5"], "meta_fields = 5 is of type int"),
        (["--format", "json"], "unknown text format 'json'.*json-lines"),
        (["--split", "0"], "share"),
    ],
)
def test_bad_options(tmp_path, json_lines, arguments, message):
    path = json_lines("d.jsonl", [{"text": "words"}])
    with pytest.raises(WorkbenchError, match=message):
        prepare("text", path, "-o", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_refusal_prints_one_message_and_exits_with_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "prepare", "text", str(tmp_path / "gone.txt"), "-o", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: INPUTS: there is no file")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_no_command_imports_another():
    modules = {entry.path.partition(":")[0] for entry in commands.entries.values()}
    for module in modules:
        path = ROOT / f"{module.replace('.', '/')}.py"
        assert not imports(path) & modules - {module}, module


@pytest.mark.data
def test_real_codex(shared, tmp_path):
    prepare("triples", shared / "data" / "codex" / "codex-s", "-o", tmp_path / "s", "--workers", 1)
    store = GraphStore.open(tmp_path / "s" / "graph")
    assert (store.num_entities, store.num_relations, store.num_triples) == (2034, 42, 32888)
    provenance = json.loads((tmp_path / "s" / "corpus.json").read_text())["provenance"]
    assert {i["name"] for i in provenance["inputs"]} >= {"train.txt", "relations.jsonl", "entity_types.jsonl"}


def test_dialogues_have_turns_in_place_of_a_text(tmp_path, json_lines, stored):
    rows = [
        {"turns": ["Where?", "In Norwa\u0065\u0301."], "speakers": ["Ann", "Ben"], "id": "d"},
        {"turns": ["Where?", " "]},
    ]
    prepare("text", json_lines("dialogues.jsonl", rows), "-o", tmp_path / "out", "--workers", 1)
    (sample,) = stored(tmp_path / "out")
    assert (sample["key"], sample["turns"], sample["speakers"]) == ("d", ["Where?", "In Norwa\u00e9."], ["Ann", "Ben"])
    assert Corpus.open(tmp_path / "out").manifest.dropped == {"MinimumLength: empty": 1}
    prepare("tokenizer", tmp_path / "out", "-o", tmp_path / "tokenizer.json", "--vocab-size", 60)
    assert "where" in Tokenizer.load(tmp_path / "tokenizer.json").vocabulary
