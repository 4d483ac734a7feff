"""`prepare parses`: dependency trees by a spaCy pipeline, which `prepare text` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.words.parses import conllu
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError

SENTENCE = "the old town sees a river"
HEADS = {"the": "town", "old": "town", "town": "sees", "a": "river", "river": "sees"}


def test_texts_are_parsed_and_read_again(tmp_path: Path, json_lines: Any, stored: Any, pipeline: Path) -> None:
    rows = [{"text": f"{SENTENCE}\n\n  {SENTENCE.replace(' ', '  ')}"}, {"text": SENTENCE}]
    prepare("text", json_lines("towns.jsonl", rows), "-o", tmp_path / "text", "--workers", 1)
    prepare("parses", tmp_path / "text", "-o", tmp_path / "trees.conllu", "--model", pipeline)
    prepare("text", tmp_path / "trees.conllu", "-o", tmp_path / "parsed", "--workers", 1)
    samples = stored(tmp_path / "parsed")
    assert [sample["text"] for sample in samples] == [SENTENCE] * 3
    for sample in samples:
        found = sample["dependencies"]
        heads = {SENTENCE[a:b]: SENTENCE[a + far :].split()[0] for a, b, far, _ in found if far}
        assert heads == HEADS
        assert [[SENTENCE[a:b], relation] for a, b, far, relation in found if not far] == [["sees", "ROOT"]]
    prepare("parses", tmp_path / "text", "-o", tmp_path / "one.conllu", "--model", pipeline, "--limit", 1)
    assert (tmp_path / "one.conllu").read_text().count("ROOT") == 2


def test_a_sentence_counts_its_own_words() -> None:
    pytest.importorskip("spacy")
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

    words, heads = ["Stop", ".", "Cats", "sleep", "."], [0, 0, 3, 3, 3]
    labels = ["ROOT", "punct", "nsubj", "ROOT", "punct"]
    parsed = Doc(Vocab(), words, spaces=[False, True, True, False, False], heads=heads, deps=labels)
    assert [sentence.text for sentence in parsed.sents] == ["Stop.", "Cats sleep."]
    rows = [row.split("\t") for row in conllu([*parsed.sents][1])]
    assert [(row[0], row[1], row[6], row[7], row[9]) for row in rows] == [
        ("1", "Cats", "2", "nsubj", "_"),
        ("2", "sleep", "0", "ROOT", "SpaceAfter=No"),
        ("3", ".", "2", "punct", "SpaceAfter=No"),
    ]


def test_what_cannot_be_parsed_is_refused(tmp_path: Path, json_lines: Any, pipeline: Path) -> None:
    spacy = pytest.importorskip("spacy")
    spacy.blank("en").to_disk(tmp_path / "plain")
    prepare("text", json_lines("t.jsonl", [{"text": SENTENCE}]), "-o", tmp_path / "text", "--workers", 1)
    trees = tmp_path / "trees.conllu"
    with pytest.raises(WorkbenchError, match=r"\(language en, parts: none\) has no parser; name one with a parser"):
        prepare("parses", tmp_path / "text", "-o", trees, "--model", tmp_path / "plain")
    with pytest.raises(WorkbenchError, match=r"trees.tsv: the trees are written to a .conllu file"):
        prepare("parses", tmp_path / "text", "-o", tmp_path / "trees.tsv", "--model", pipeline)
    turns = json_lines("d.jsonl", [{"turns": ["hello", "good day"]}])
    prepare("text", turns, "-o", tmp_path / "dialogues", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"no record of .* has a 'text' \(they have .*turns"):
        prepare("parses", tmp_path / "dialogues", "-o", trees, "--model", pipeline)
    assert not trees.exists()
