"""`prepare token-counts`, from texts to a run that masks rare tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.reading_run import continues_with_no_other
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.text.token_counts import read_token_counts
from workbench.text.tokenizer import Tokenizer, train_tokenizer


@pytest.mark.parametrize("command", ["token-counts", "tokenizer"])
def test_what_a_corpus_holds_is_not_written_over(tmp_path: Path, json_lines: Any, command: str) -> None:
    prepare("text", json_lines("towns.jsonl", [{"text": "the river"}] * 9), "-o", tmp_path / "text", "--workers", 1)
    prepare("tokenizer", tmp_path / "text", "-o", tmp_path / "tokenizer.json", "--vocab-size", 60)
    before = {path.name: path.read_bytes() for path in (tmp_path / "text").iterdir()}
    options = ("--tokenizer", tmp_path / "tokenizer.json") if command == "token-counts" else ()
    for name in before:
        with pytest.raises(WorkbenchError, match=f"--output: .*{name} belongs to the corpus"):
            prepare(command, tmp_path / "text", "-o", tmp_path / "text" / name, *options)
    assert {path.name: path.read_bytes() for path in (tmp_path / "text").iterdir()} == before


@pytest.mark.parametrize("counts", [[2**70] * 5, [0] * 5, [1] * 4, [1] * 6, [0.5] * 5, [-1] * 5, [True] * 5])
def test_counts_that_are_none_of_the_tokenizer_are_refused(tmp_path: Path, counts: list[Any]) -> None:
    tokenizer = Tokenizer(train_tokenizer([], "wordpiece", 100))
    assert tokenizer.vocab_size == 5
    reported = {"kind": "token counts", "tokenizer": tokenizer.identity, "counts": counts}
    (tmp_path / "counts.json").write_text(json.dumps(reported))
    with pytest.raises(WorkbenchError, match=r"counts\.json .*`workbench prepare token-counts .*counts\.json`"):
        read_token_counts(tmp_path / "counts.json", tokenizer)


def test_a_run_masks_by_counts_and_continues_with_no_others(tmp_path: Path, json_lines: Any) -> None:
    rows = [{"text": "the town of oslo"}] * 299 + [{"text": "the river"}]
    prepare("text", json_lines("towns.jsonl", rows), "-o", tmp_path / "text", "--workers", 1)
    prepare("tokenizer", tmp_path / "text", "-o", tmp_path / "tokenizer.json", "--vocab-size", 60)
    file = tmp_path / "counts.json"
    count = ["token-counts", tmp_path / "text", "--tokenizer", tmp_path / "tokenizer.json", "-o", file]
    prepare(*count)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    counts = read_token_counts(file, tokenizer)
    for word, times in (("the", 300), ("oslo", 299)):
        assert counts[tokenizer.encode(word).ids].tolist() == [times]
    assert counts.sum() == sum(len(tokenizer.encode(row["text"]).ids) for row in rows)

    mlm = f"{{objective: mlm, masking: {{masking: rare, counts: {file}}}}}"
    continues_with_no_other(tmp_path, mlm, file, lambda: prepare(*count, "--limit", 9), "token counts")
