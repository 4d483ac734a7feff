"""The triples format `conceptnet`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines


def assertion(relation: str, start: str, end: str, weight: float = 1.0) -> str:
    return f'/a/[{relation}/,{start}/,{end}/]\t{relation}\t{start}\t{end}\t{{"license": "cc", "weight": {weight}}}'


CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: assertion("/r/IsA", f"/c/en/a{i}", "/c/en/b")),
    file="assertions.csv",
    more=1,
)
ROWS = [
    assertion("/r/IsA", "/c/en/guide_dog/n", "/c/en/dog/n/wn/animal", 2.0),
    assertion("/r/IsA", "/c/en/guide_dog", "/c/en/dog"),
    assertion("/r/Synonym", "/c/en/dog", "/c/de/hund/n"),
    assertion("/r/dbpedia/genusOf", "/c/en/dog", "/c/en/wolf", 0.5),
    assertion("/r/ExternalURL", "/c/en/dog", "http://dbpedia.org/resource/Dog"),
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "assertions.csv"
    path.write_text("".join(f"{row}\n" for row in ROWS))
    return path


def test_ids_say_what_concepts_and_relations_are_called(rows, read):
    guide, dog, wolf = read("triples", rows)
    assert (guide["id"], guide["label"], wolf["label"]) == ("/c/en/guide_dog", "guide dog", "wolf")
    assert guide["triples"] == [
        {"relation": "/r/IsA", "relation_text": "is a", "tail": "/c/en/dog", "tail_text": "dog"}
    ]
    assert [t["relation_text"] for t in dog["triples"]] == ["genus of"]


def test_languages_weights_and_senses(rows, read, drops):
    assert [s["id"] for s in read("triples", rows, min_weight=1)] == ["/c/en/guide_dog", "/c/en/dog"]
    both = {s["id"]: len(s["triples"]) for s in read("triples", rows, languages=["en", "de"])}
    assert both["/c/en/dog"] == 2
    assert "/c/de/hund" in both
    apart = [s["id"] for s in read("triples", rows, senses=True)]
    assert apart[:2] == ["/c/en/guide_dog/n", "/c/en/dog/n/wn/animal"]
    reasons = ["an end in another language, or no concept", "a weight below 1", "a repeated triple"]
    assert drops("triples", rows, min_weight=1) == reasons


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("/a/x\t/r/IsA\t/c/en/a\t/c/en/b", "found 4 columns"),
        (assertion("/r/IsA", "/c/en/a", "/c/en/b")[:-1], "not a line of JSON"),
        ("/a/x\t/r/IsA\t/c/en/a\t/c/en/b\t{}", "no field 'weight'"),
    ],
)
def test_bad_rows(rows, read, row, reason):
    rows.write_text(f"{ROWS[0]}\n{row}\n")
    with pytest.raises(MalformedError, match=rf"assertions\.csv:2.*{reason}"):
        read("triples", rows, format="conceptnet", min_weight=1)
