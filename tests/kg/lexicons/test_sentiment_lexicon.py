"""A table of words with their part of speech and polarity."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.lexicons.sentiment_lexicon import TAGS, UNKNOWN, SentimentLexicon, WordSentiment, read_sentiment_lexicon
from workbench.core.errors import WorkbenchError

LINES = (
    "good\ta\t0.7\ngood\tn\t0.1\nhate\tv\t-0.8\nfine\ta\t0.4\nfine\tn\t-0.2\nbank\tn\t0\nodd\ta\t-0.5\nodd\ta\t0.9\n"
)


@pytest.fixture
def lexicon(tmp_path: Path) -> SentimentLexicon:
    path = tmp_path / "polarity.tsv"
    path.write_text(LINES + "\n  \nbravely\tr\t0.3\n")
    return read_sentiment_lexicon(path)


def test_a_word_is_of_the_part_of_speech_of_its_first_row(lexicon: SentimentLexicon) -> None:
    assert len(lexicon) == 6
    assert [lexicon.of(word).tag for word in ("good", "Fine", "bravely")] == ["a:positive", "a:positive", "r:positive"]
    assert lexicon.of("bank").tag == "n:neutral"
    assert lexicon.of("table") == UNKNOWN == TAGS["u:neutral"]


def test_inflected_forms_are_of_their_base_form_and_its_part_of_speech(lexicon: SentimentLexicon) -> None:
    assert lexicon.of("hated").tag == lexicon.of("HATES").tag == "v:negative"
    assert lexicon.of("finest").tag == "a:positive"
    assert lexicon.of("fines").tag == "n:negative"
    assert lexicon.of("banks").tag == "n:neutral"


def test_the_polarities_of_senses_count_by_their_rank(lexicon: SentimentLexicon) -> None:
    assert lexicon.of("odd").tag == "a:negative"  # -0.5 / 1 + 0.9 / 2 < 0
    other = SentimentLexicon([("odd", "a", 0.9), ("odd", "a", -0.5)])
    assert other.of("odd").tag == "a:positive"
    assert SentimentLexicon([("even", "a", 1.0), ("even", "a", -2.0)]).of("even").tag == "a:neutral"


def test_words_whose_rows_contradict_each_other_are_named(lexicon: SentimentLexicon) -> None:
    """By their part of speech: `fine` is good as an adjective, bad as a noun."""
    assert lexicon.mixed == ["odd (a)"]
    assert SentimentLexicon([("Good", "a", 0.5), ("good", "a", -0.5), ("bad", "a", -1.0)]).mixed == ["good (a)"]


def test_every_tag_is_read_back() -> None:
    assert len(TAGS) == 15
    assert all(known.tag == tag for tag, known in TAGS.items())
    assert TAGS["v:negative"] == WordSentiment(0, 0)


@pytest.mark.parametrize("line", ["good\ta", "good\tx\t1", "good\tu\t1", "\ta\t1", "good\ta\tnan", "good\ta\tgreat"])
def test_bad_lines(tmp_path: Path, line: str) -> None:
    path = tmp_path / "polarity.tsv"
    path.write_text(f"fine\ta\t1\n{line}\n")
    with pytest.raises(WorkbenchError, match=r"polarity\.tsv:2: expected word<tab>part of speech"):
        read_sentiment_lexicon(path)


def test_no_such_file_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="No such file"):
        read_sentiment_lexicon(tmp_path / "none.tsv")
    (tmp_path / "empty.tsv").write_text("\n")
    with pytest.raises(WorkbenchError, match="has no line"):
        read_sentiment_lexicon(tmp_path / "empty.tsv")
    (tmp_path / "latin.tsv").write_bytes(b"caf\xe9\tn\t1\n")
    with pytest.raises(WorkbenchError, match="not in UTF-8"):
        read_sentiment_lexicon(tmp_path / "latin.tsv")
