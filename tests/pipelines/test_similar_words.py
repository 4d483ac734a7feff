"""`prepare similar-words`, from texts to a run that reads the words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.reading_run import continues_with_no_other
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.text.similar_words import SimilarWords
from workbench.text.tokenizer import Tokenizer

TOWNS = ("oslo", "lima", "cairo", "quito")


@pytest.fixture
def corpora(tmp_path: Path, json_lines: Any) -> Path:
    rows = [{"text": f"the town of {TOWNS[i % 4]} has {TOWNS[i % 3]} on its map."} for i in range(120)]
    prepare("text", json_lines("towns.jsonl", rows), "-o", tmp_path / "text", "--workers", 1)
    prepare("tokenizer", tmp_path / "text", "-o", tmp_path / "tokenizer.json", "--vocab-size", 80)
    return tmp_path


def similar_words(corpora: Path, **options: Any) -> Path:
    pytest.importorskip("gensim")
    output = corpora / "similar-words.safetensors"
    given = [argument for name, value in options.items() for argument in (f"--{name}", value)]
    prepare("similar-words", corpora / "text", "--tokenizer", corpora / "tokenizer.json", "-o", output, *given)
    return output


def test_the_table_is_of_the_corpus_and_the_tokenizer(corpora: Path) -> None:
    table = SimilarWords(similar_words(corpora, dim=8, nearest=3))
    tokenizer = Tokenizer.load(corpora / "tokenizer.json")
    assert table.tokenizer == tokenizer.identity
    assert table.provenance["dim"] == 8
    assert list(table.provenance["corpora"]) == [str(corpora / "text")]
    for town in TOWNS:
        word = tokenizer.encode(town).ids
        near = [table.word(int(row)) for row in table.of(word)]
        assert len(near) <= 3
        assert all(len(other) == len(word) for other in near)


def test_a_run_knows_its_similar_words_and_continues_with_no_others(corpora: Path) -> None:
    file = similar_words(corpora, dim=8)
    mlm = f"{{objective: mlm, masking: whole_word, replace: {{per: word, similar: {file}}}}}"
    continues_with_no_other(corpora, mlm, file, lambda: similar_words(corpora, dim=9), "similar words")


def test_another_ending_is_refused_before_the_work(corpora: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"words\.bin: similar words are written to a \.safetensors file"):
        prepare(
            "similar-words",
            corpora / "text",
            "--tokenizer",
            corpora / "tokenizer.json",
            "-o",
            corpora / "words.bin",
        )
