"""`prepare phrases`: collocations of a corpus, noun chunks of a spaCy pipeline, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.stages.phrase_marks import chunker
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.text.collocations import CollocationOptions, Collocations, sentences_of

TEXTS = [
    "New York City is large. We saw new york city at night, and the river.",
    "The river runs by the town; New York City lies there!",
    "At night we saw the town and the river. The mayor of new york city runs.",
    "Is the town large? The mayor saw the river by night.",
]


def collocations(texts: list[str], **options: Any) -> Collocations:
    pytest.importorskip("gensim")
    return Collocations.of(texts, CollocationOptions(**options))


def read(text: str, spans: list[list[int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


def test_words_that_stand_together_are_a_phrase_of_up_to_four() -> None:
    found = collocations(TEXTS, min_count=4, threshold=0.8)
    assert read(TEXTS[0], found.spans(TEXTS[0])) == ["New York City", "new york city"]
    assert read("In NEW YORK-ish New  York\ncity", found.spans("In NEW YORK-ish New  York\ncity")) == [
        "New  York\ncity"
    ]
    assert found.spans("New York. City") == [[0, 8]]
    assert found.spans("") == found.spans(" ... ") == []
    assert not len(collocations(TEXTS, min_count=50))


def test_where_words_are_written_without_spaces_characters_are_joined() -> None:
    texts = ["他在北京工作。", "北京很大", "我去北京", "京都不大，东北很远"] * 3
    found = collocations(texts, min_count=5, threshold=0.7)
    assert read("她爱北京，不爱京都", found.spans("她爱北京，不爱京都")) == ["北京"]


def test_sentences_end_at_punctuation_and_words_keep_their_places() -> None:
    text = "Don't stop-me, ok?  北京A1 _x"
    found = [(words, read(text, places)) for words, places in sentences_of(text)]
    assert found == [
        (["don't", "stop-me"], ["Don't", "stop-me"]),
        (["ok"], ["ok"]),
        (["北", "京", "a1"], ["北", "京", "A1"]),
        (["x"], ["x"]),
    ]


def corpus(tmp_path: Path, json_lines: Any) -> Path:
    rows = [{"text": text, "second": "the old town sees a river"} for text in TEXTS]
    prepare("text", json_lines("towns.jsonl", rows), "-o", tmp_path / "text", "--workers", 1)
    return tmp_path / "text"


def test_the_command_finds_phrases_by_statistics(tmp_path: Path, json_lines: Any, stored: Any) -> None:
    pytest.importorskip("gensim")
    given = ("--min-count", 4, "--threshold", 0.8, "--workers", 1)
    prepare("phrases", corpus(tmp_path, json_lines), "-o", tmp_path / "phrases", *given)
    samples = stored(tmp_path / "phrases")
    named = [[s["text"][start:end] for start, end, _ in s["mask_spans"]] for s in samples]
    assert {phrase.lower() for found in named for phrase in found} >= {"new york city"}
    assert all(kind == "phrase" for s in samples for *_, kind in s["mask_spans"] + s["second_mask_spans"])
    assert samples[0]["meta"]["phrases"]["threshold"] == 0.8
    assert Corpus.open(tmp_path / "phrases").manifest.about["phrases"]["min_count"] == 4


def test_the_command_takes_the_noun_chunks_of_a_pipeline(
    tmp_path: Path, json_lines: Any, stored: Any, pipeline: Path
) -> None:
    prepare("phrases", corpus(tmp_path, json_lines), "-o", tmp_path / "p", "--model", pipeline, "--workers", 1)
    sample = stored(tmp_path / "p")[0]
    found = [sample["second"][start:end] for start, end, _ in sample["second_mask_spans"]]
    assert found == ["the old town", "a river"]
    assert sample["meta"]["phrases"]["pipeline"] == "en_chunks"


def test_pipelines_without_noun_chunks_are_refused(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    for language, name in (("en", "plain"), ("zh", "chinese")):
        spacy.blank(language).to_disk(tmp_path / name)
        with pytest.raises(WorkbenchError, match=rf"language {language}, parts: none\) finds no noun chunks"):
            chunker(str(tmp_path / name))
    with pytest.raises(WorkbenchError, match="there is no spaCy pipeline 'en_nowhere'"):
        chunker("en_nowhere")
