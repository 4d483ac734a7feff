"""The triples format `freebase`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"m.0{i}\tpeople.person.place\tm.0x"),
    file="graph.tsv",
    more=1,
)
ROWS = """/m/0a\tlocation.country.capital\tm.0b
m.0a\ttype.object.name\t"Norge"@no
m.0a\ttype.object.name\t"Norway"@en
m.0a\t/common/topic/alias\t"Kingdom of Norway"@en
m.0a\tcommon.topic.description\t"a country"@en
m.0a\tlocation.area\t"385207"
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "fb.tsv"
    path.write_text(ROWS)
    return path


def test_names_stand_among_the_triples(rows, read):
    norway, oslo = read("triples", rows)
    assert (norway["id"], norway["label"], norway["aliases"]) == ("m.0a", "Norway", ["Kingdom of Norway"])
    assert norway["description"] == "a country"
    assert [(t["relation"], t["tail"]) for t in norway["triples"]] == [("location.country.capital", "m.0b")]
    assert oslo["label"] == "m.0b"
    assert read("triples", rows, language="no")[0]["label"] == "Norge"


def test_names_of_a_file_in_the_other_writing(rows, tmp_path, read):
    (tmp_path / "mid2name.txt").write_text("/m/0b\tOslo\n")
    norway, oslo = read("triples", rows, entities=[str(tmp_path / "mid2name.txt")])
    assert (oslo["id"], oslo["label"], norway["triples"][0]["tail_text"]) == ("m.0b", "Oslo", "Oslo")


def test_what_is_left_out_is_counted(rows, drops):
    assert sorted(drops("triples", rows)) == ["a text in another language", "a value that is no topic"]


def test_a_row_of_two_columns(rows, read):
    rows.write_text(ROWS + "m.0a\tm.0b\n")
    with pytest.raises(MalformedError, match=r"fb\.tsv:7: expected m\.id<tab>relation<tab>m\.id \(found 2 columns\)"):
        read("triples", rows)


def test_relations_of_either_writing_are_one(tmp_path, read):
    (tmp_path / "fb.tsv").write_text(
        "/m/0a\t/location/country/capital\t/m/0b\nm.0c\tlocation.country.capital\tm.0d\n"
        "/m/0a\t/a/b/c./d/e/f\t/m/0b\nm.0a\ttype.object.type\tlocation.country\n"
    )
    (tmp_path / "names.tsv").write_text("/location/country/capital\tcapital\n")
    (tmp_path / "types.tsv").write_text("/location/country\tcountry\n")
    files = {"relations": [str(tmp_path / "names.tsv")], "type_names": [str(tmp_path / "types.tsv")]}
    first, *_ = records = read("triples", tmp_path / "fb.tsv", **files)
    assert {t["relation"] for r in records for t in r["triples"]} == {"location.country.capital", "a.b.c..d.e.f"}
    assert first["triples"][0]["relation_text"] == "capital"
    assert (first["types"], first["meta"]["type_labels"]) == (["location.country"], ["country"])
