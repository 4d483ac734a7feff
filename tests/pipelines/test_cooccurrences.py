"""`prepare cooccurrence`: counts by a plain loop, merged in parts, and records as GloVe's cells."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.preparing import cooccurrences
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TEXTS = ["the river and the town", "a bridge", "the town and unheard of the river", "town"]


@pytest.mark.parametrize("pending", [1, cooccurrences.PENDING])
def test_pairs_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch, pending: int) -> None:
    monkeypatch.setattr(cooccurrences, "PENDING", pending)
    rng = np.random.default_rng(0)
    texts, wanted = [rng.integers(0, 9, n) for n in (0, 1, 2, 30, 7)], Counter[tuple[int, int]]()
    counts = cooccurrences.PairCounts(9)
    for ids in texts:
        counts.add(ids, 4)
        for i in range(len(ids)):
            for j in range(len(ids)):
                if 0 < abs(i - j) <= 4:
                    wanted[int(ids[i]), int(ids[j])] += 1 / abs(i - j)  # type: ignore[assignment]
    found = {(i, int(j)): x for i, near, sums in counts.rows() for j, x in zip(near, sums, strict=True)}
    assert found == pytest.approx(dict(wanted))


def test_a_corpus_of_cells_has_each_word_with_those_near_it(tmp_path: Path, json_lines: Any) -> None:
    prepare(
        "text", json_lines("towns.jsonl", [{"text": text} for text in TEXTS]), "-o", tmp_path / "text", "--workers", 1
    )
    words = ["the river and town a bridge of"] * 3
    Tokenizer(train_tokenizer(words, "word", 40)).save(tmp_path / "tokenizer.json")
    options = ("--tokenizer", tmp_path / "tokenizer.json", "--workers", 1, "-o")
    prepare("cooccurrence", tmp_path / "text", *options, tmp_path / "cells", "--window", 2, "--cells", 3)
    found: dict[str, dict[str, float]] = {}
    for sample in Corpus.open(tmp_path / "cells"):
        assert 1 <= len(sample["cooccurrences"]) <= 3
        found.setdefault(sample["text"], {}).update(sample["cooccurrences"])
    assert found["bridge"] == {"a": 1.0}
    assert found["of"] == {"and": 1.0, "town": 0.5, "the": 1.0, "river": 0.5}  # `unheard` is left out before
    assert all(found[j][i] == x for i, near in found.items() for j, x in near.items())
    split = ("--cells", 1, "--split", "held-out=0.3")
    prepare("cooccurrence", tmp_path / "text", *options, tmp_path / "apart", *split)
    kept, held = ([s["text"] for s in Corpus.open(tmp_path / f"apart{end}")] for end in ("", "-held-out"))
    assert len(kept) > len(held) > 0
    assert {*kept} & {*held}  # cells of a word are held out, and not the word
    prepare("cooccurrence", tmp_path / "text", *options, tmp_path / "few", "--limit", 2)
    assert {sample["text"] for sample in Corpus.open(tmp_path / "few")} == {
        "the",
        "river",
        "and",
        "town",
        "a",
        "bridge",
    }


def test_a_tokenizer_without_words_is_refused(tmp_path: Path, json_lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare("text", json_lines("towns.jsonl", [{"text": "a"}]), "-o", tmp_path / "text", "--workers", 1)
    Tokenizer(train_tokenizer(["a"], "word", 40)).save(tmp_path / "tokenizer.json")
    monkeypatch.setattr(cooccurrences.CooccurrenceReader, "words", {})
    with pytest.raises(WorkbenchError, match=r"no token .* is a word"):
        prepare("cooccurrence", tmp_path / "text", "--tokenizer", tmp_path / "tokenizer.json", "-o", tmp_path / "x")
