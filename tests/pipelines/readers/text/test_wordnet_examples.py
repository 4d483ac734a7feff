"""The text format `wordnet-examples`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.readers.formats import detect
from pipelines.readers.reader import Drop, MalformedError
from pipelines.readers.text.wordnet_examples import WordnetExamples
from tests.contracts.cases import ReaderCase
from tests.preparing import app
from workbench.corpora.corpus import Corpus

GLOSS = 'where people live; "an ancient City"; "they moved"; "a market town"'
ROW = f"00000001 15 n 02 city 0 market_town 0 001 @ 00000009 n 0000 | {GLOSS}  \n"
SATELLITE = '00000002 00 s 01 old(a) 0 000 | not new; "this is very OLD"\n'


def row(i: int) -> str:
    return f'{i:08} 15 n 01 city 0 000 | a place; "the city {i}"\n'


CASE = ReaderCase(text=lambda records: "".join(map(row, range(records))), file="data.noun", folder=True)


def folder(tmp_path: Path, **files: str) -> Path:
    place = tmp_path / "dict"
    place.mkdir()
    for name, text in files.items():
        (place / f"data.{name}").write_text(f"  1 the licence\n{text}")
    return place


def test_an_example_is_linked_to_its_sense(tmp_path: Path) -> None:
    place = folder(tmp_path, noun=ROW, adj=SATELLITE)
    assert detect("text", [place]) == "wordnet-examples"
    reader = WordnetExamples()
    read = [reader.read(record) for record in reader.records([place])]
    samples = [sample for sample in read if not isinstance(sample, Drop)]
    assert [drop for drop in read if isinstance(drop, Drop)] == [Drop("no word of its synset as it is spelt")]
    found = [(s["text"][start:end], entity, score) for s in samples for start, end, entity, score in s["spans"]]
    assert found == [("City", "00000001-n", 1.0), ("market town", "00000001-n", 1.0), ("OLD", "00000002-a", 1.0)]
    assert len({sample["key"] for sample in samples}) == 3


def test_a_damaged_line_stops_the_reading(tmp_path: Path) -> None:
    reader = WordnetExamples()
    with pytest.raises(MalformedError, match="no synset of WordNet"):
        list(reader.samples([folder(tmp_path, noun=f"{ROW}00000003 15 n 01\n")]))


def test_the_examples_teach_which_candidate_is_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From WordNet's folder to a corpus for `kg.entity_linking`, by commands alone."""
    place, linked = folder(tmp_path, noun=ROW + ROW.replace("00000001", "00000009")), str(tmp_path / "linked")
    offered = ("--graph", str(tmp_path / "wordnet"), "--candidates", "5", "--supervise")
    runner = CliRunner()
    for command in (
        ["triples", str(place), "-o", str(tmp_path / "wordnet")],
        ["text", str(place), "-o", str(tmp_path / "examples"), "--workers", "1"],
        ["link", str(tmp_path / "examples"), *offered, "-o", linked, "--workers", "1"],
    ):
        with caplog.at_level(logging.WARNING):
            done = runner.invoke(app, command)
        assert done.exit_code == 0, done.output or done.exception
    corpus = Corpus.open(linked)
    spans = [span for record in range(corpus.records) for span in corpus.read(0, record)["spans"]]
    assert sorted((span[2], span[4]["right"]) for span in spans) == [
        *[("00000001-n", 0), ("00000001-n", 0), ("00000001-n", 1), ("00000001-n", 1)],
        *[("00000009-n", 0), ("00000009-n", 0), ("00000009-n", 1), ("00000009-n", 1)],
    ]
