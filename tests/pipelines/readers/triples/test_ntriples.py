"""The triples format `ntriples`."""

from __future__ import annotations

import bz2

from pipelines.readers.triples import ntriples
from pipelines.sources.files import lines as lines_of_file
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"<http://x.org/a{i}> <http://x.org/r> <http://x.org/b> ."),
    file="graph.nt",
    more=1,
)

WD, SCHEMA = "http://www.wikidata.org", "http://schema.org/description"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
TRUTHY = f"""<{WD}/entity/Q42> <{LABEL}> "D. Adams"@mul .
<{WD}/entity/Q42> <{LABEL}> "Douglas Adams"@en .
<{WD}/entity/Q42> <{SCHEMA}> "writer"@en .
<{WD}/entity/Q42> <{WD}/prop/direct/P31> <{WD}/entity/Q5> .
<{WD}/entity/Q42> <{WD}/prop/direct/P18> <http://commons.wikimedia.org/wiki/Special:FilePath/A.jpg> .
<{WD}/entity/Q42> <{WD}/prop/direct/P569> "1952" .
<https://en.wikipedia.org/wiki/Douglas_Adams> <http://schema.org/about> <{WD}/entity/Q42> .
<{WD}/entity/Q42> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://wikiba.se/ontology#Item> .
<{WD}/entity/Q5> <{LABEL}> "human"@mul .
<{WD}/entity/P31> <{LABEL}> "instance of"@en .
"""


def test_truthy_statements_of_wikidata(tmp_path, read, drops):
    path = tmp_path / "truthy.nt.bz2"
    path.write_bytes(bz2.compress(TRUTHY.encode()))
    adams, human = read("triples", path, foreign=False)
    assert (adams["label"], adams["description"], adams["types"]) == ("Douglas Adams", "writer", ["Q5"])
    fact = {"relation": "P31", "relation_text": "instance of", "tail": "Q5", "tail_text": "human"}
    assert adams["triples"] == [fact]
    assert (adams["meta"]["type_labels"], human["label"]) == (["human"], "human")
    assert drops("triples", path, foreign=False) == ["a link with a foreign name", "a value that is no text"]
    assert len(read("triples", path)) == 4  # the photograph and the page too
    assert read("triples", path, language="fr", foreign=False)[0]["label"] == "D. Adams"


def test_aliases_of_a_subject_that_comes_again_are_joined(tmp_path, read):
    alias = "http://www.w3.org/2004/02/skos/core#altLabel"
    path = tmp_path / "g.nt"
    rows = [("a", alias, '"x"'), ("b", "r", "<a>"), ("b", alias, '"y"'), ("a", alias, '"z"'), ("a", alias, '"x"')]
    path.write_text("".join(f"<{s}> <{p}> {o} .\n" for s, p, o in rows))
    samples = {s["id"]: s["aliases"] for s in read("triples", path)}
    assert samples == {"a": ["x", "z"], "b": ["y"]}


def test_names_with_escapes(tmp_path, read):
    path = tmp_path / "g.nt"
    path.write_text("<http://x.org/caf\\u00e9> <http://x.org/\\u0072> <http://x.org/\\U0001F600> .\n")
    (sample,) = (s for s in read("triples", path) if s["triples"])
    fact = sample["triples"][0]
    assert (sample["id"], fact["relation"], fact["tail"]) == (
        "http://x.org/café",
        "http://x.org/r",
        "http://x.org/\N{GRINNING FACE}",
    )


def test_texts_and_triples_come_of_one_reading(tmp_path, read, monkeypatch):
    path = tmp_path / "truthy.nt"
    path.write_text(TRUTHY)
    opened = []
    monkeypatch.setattr(ntriples, "lines", lambda path: opened.append(path) or lines_of_file(path))
    assert read("triples", path, foreign=False)[0]["label"] == "Douglas Adams"
    assert opened == [path]
