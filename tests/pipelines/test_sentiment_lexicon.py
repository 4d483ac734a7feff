"""`prepare sentiment-lexicon`: polarities by part of speech and sense, of published lexicons."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kg.lexicons.sentiment_lexicon import read_sentiment_lexicon
from tests.preparing import app
from workbench.core.errors import WorkbenchError

SENTIWORDNET = """# POS\tID\tPosScore\tNegScore\tSynsetTerms\tGloss
n\t00000001\t0\t0\tlove#1 beloved#2\ta deep feeling; "his love"
n\t00000002\t0.25\t0\tlove#2\tpleasure
v\t00000003\t0.5\t0.125\tlove#1\thave affection
s\t00000004\t0\t0.75\tBeloved#2 ill_at_ease#1\tdear
a\t00000005\t0.5\t0\tbeloved#1\tloved
#\t\t\t\t
"""
SCORES = (("NN", 0.1), ("JJ", 0.4), ("JJ", -0.2), ("UH", 0.3))
XML = "".join(f'<word form="fast" pos="{part}" polarity="{score}" />' for part, score in SCORES)
SENSES = (
    *("fast%3:00:01:: 01 1 5", "fast%5:00:01:: 02 2 1", "fast%4:02:00:: 03 1 9", "run%2:38:00:: 04 1 7"),
    *("run_fast%2:38:00:: 05 1 1", "love%2:37:00:: 06 1 40", "love%1:12:00:: 07 1 30"),
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "swn.txt").write_text(SENTIWORDNET)
    (tmp_path / "s.xml").write_text(f'<?xml version="1.0"?>\n<sentiment>{XML}</sentiment>')
    (tmp_path / "index.sense").write_text("\n".join(SENSES) + "\n")
    return tmp_path


def prepare(*command: Any) -> None:
    done = CliRunner().invoke(app, ["sentiment-lexicon", *map(str, command)])
    if isinstance(done.exception, WorkbenchError):
        raise done.exception
    assert done.exit_code == 0, done.output


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_senses_stand_in_their_order_and_the_commonest_part_of_speech_first(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    prepare(files / "swn.txt", "-o", files / "p.tsv")
    beloved = [["beloved", "a", "0.5"], ["beloved", "a", "-0.75"], ["beloved", "n", "0"]]
    noun, verb = [["love", "n", "0"], ["love", "n", "0.25"]], [["love", "v", "0.375"]]
    assert rows(files / "p.tsv") == [*beloved, *noun, *verb], "the noun has more senses"
    assert "2 words, 2 with a polarity" in caplog.text
    assert "left out 1, a name of several words" in caplog.text
    prepare(files / "swn.txt", "--senses", files / "index.sense", "-o", files / "q.tsv")
    assert [row for row in rows(files / "q.tsv") if row[0] == "love"] == [*verb, *noun], "the verb occurs more often"
    assert read_sentiment_lexicon(files / "q.tsv").of("loved").tag == "v:positive"
    assert read_sentiment_lexicon(files / "p.tsv").of("beloved").tag == "a:positive", "0.5 - 0.75 / 2"


def test_textblobs_words_and_all_others_of_wordnet(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    prepare(files / "s.xml", "--senses", files / "index.sense", "-o", files / "p.tsv")
    fast = [["fast", *row] for row in (["r", "0"], ["a", "0.4"], ["a", "-0.2"], ["n", "0.1"])]
    assert rows(files / "p.tsv") == [*fast, ["love", "v", "0"], ["love", "n", "0"], ["run", "v", "0"]]
    assert "left out 1, a part of speech other than" in caplog.text


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("swn.txt", "0.25", "nan", r"line 3: .* is no line of SentiWordNet"),
        ("swn.txt", "love#2", "love", r"line 3: .* is no line of SentiWordNet"),
        ("swn.txt", "v\t", "x\t", r"line 4: .* is no line of SentiWordNet"),
        ("swn.txt", SENTIWORDNET, "# nothing\n", "no word with a polarity"),
        ("s.xml", "</sentiment>", "", "is damaged, or no XML"),
        ("s.xml", "0.4", "much", "word 2: .* a polarity that is no number"),
        ("index.sense", "01 1 5", "01 1 five", "line 1: .*index.sense"),
    ],
)
def test_what_is_damaged_is_named(files: Path, name: str, old: str, new: str, message: str) -> None:
    damaged = files / name
    damaged.write_text(damaged.read_text().replace(old, new))
    source = "s.xml" if name == "s.xml" else "swn.txt"
    with pytest.raises(WorkbenchError, match=message):
        prepare(files / source, "--senses", files / "index.sense", "-o", files / "p.tsv")
    assert not list(files.glob("p.*"))


def test_files_that_are_not_there_and_other_endings(files: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"none\.txt: No such file"):
        prepare(files / "none.txt", "-o", files / "p.tsv")
    with pytest.raises(WorkbenchError, match=r"written to a \.tsv file"):
        prepare(files / "swn.txt", "-o", files / "p.txt")
