"""The triples format `rdf`."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads", "long lines": "Turtle has no lines"},
    text=lines(lambda i: f"x:a{i} x:r x:b .", "@prefix x: <http://x.org/> .\n"),
    file="graph.ttl",
    more=1,
    needs="rdflib",
)
TURTLE = """@prefix : <http://x.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:oslo a :City ; rdfs:label "Oslo"@en, "Ósló"@is ; :in :norway ; :mayor [ rdfs:label "Ann"@en ] ; :people 700000 .
:in rdfs:label "lies in"@en .
"""
NEEDS = pytest.mark.skipif(find_spec("rdflib") is None, reason="rdflib is not installed (the extra kg)")
XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x.org/">
  <rdf:Description rdf:about="http://x.org/oslo"><x:in rdf:resource="http://x.org/norway"/></rdf:Description>
</rdf:RDF>
"""


@NEEDS
def test_turtle(tmp_path, read, drops):
    path = tmp_path / "cities.ttl"
    path.write_text(TURTLE, "utf-8")
    samples = {s["id"]: s for s in read("triples", path, prefixes=["http://x.org/"])}
    oslo = samples["oslo"]
    assert (oslo["label"], oslo["types"]) == ("Oslo", ["City"])
    assert {(t.get("relation_text"), t["tail_text"]) for t in oslo["triples"]} == {("lies in", "norway"), (None, "Ann")}
    assert samples["_:cities-1"]["label"] == "Ann"
    assert drops("triples", path) == ["a value that is no text"]
    assert {*(s["id"] for s in read("triples", path, prefixes=["http://x.org/"], foreign=False))} >= {"oslo", "norway"}


@NEEDS
@pytest.mark.parametrize("name", ["g.rdf", "g.owl"])
def test_xml(tmp_path, read, name):
    (tmp_path / name).write_text(XML)
    oslo, norway = read("triples", tmp_path / name)
    assert (oslo["triples"][0]["relation"], norway["id"]) == ("http://x.org/in", "http://x.org/norway")


@NEEDS
def test_an_error_comes_behind_what_stands_before_it(tmp_path, read):
    path = tmp_path / "g.ttl"
    path.write_text("@prefix x: <http://x.org/> .\nx:a x:r x:b .\nx:c x:r\n")
    with pytest.raises(MalformedError, match=r"g\.ttl: no turtle \(at line"):
        read("triples", path)


@NEEDS
def test_another_suffix(tmp_path, read):
    (tmp_path / "g.txt").write_text(TURTLE, "utf-8")
    with pytest.raises(WorkbenchError, match=r"g\.txt has none of the suffixes of RDF: \.ttl, \.n3"):
        read("triples", tmp_path / "g.txt", format="rdf")
