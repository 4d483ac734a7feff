"""`prepare answers`: the vocabulary of a classifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError


@pytest.fixture
def questions(tmp_path: Path, json_lines: Callable[..., Path], tar: Callable[..., Any], photograph: Any) -> Path:
    tar("images.tar", {"a.jpg": photograph(1), "b.jpg": photograph(2)})
    given = ["Two", "2", "a red one", "yes", "Yes.", "yes"]
    rows = [
        {"question_id": i, "image": f"{'ab'[i % 2]}.jpg", "question": f"what {i}?", "answer": answer}
        for i, answer in enumerate(given)
    ]
    prepare("image-text", json_lines("q.jsonl", rows), "-o", tmp_path / "corpus", "--workers", 1)
    return tmp_path / "corpus"


def test_answers_are_listed_in_normal_form_the_frequent_ones_first(questions: Path, tmp_path: Path) -> None:
    prepare("answers", questions, "--min-count", 2, "-o", tmp_path / "answers.json")
    assert json.loads((tmp_path / "answers.json").read_text()) == ["yes", "2"]
    with pytest.raises(WorkbenchError, match="no answer is the main one of 9 questions"):
        prepare("answers", questions, "--min-count", 9, "-o", tmp_path / "none.json")
    prepare("answers", questions, "-o", tmp_path / "all.json")
    assert json.loads((tmp_path / "all.json").read_text()) == ["yes", "2", "red 1"], "of so few questions all"
    with pytest.raises(WorkbenchError, match=r"are written to a \.json file"):
        prepare("answers", questions, "-o", tmp_path / "answers.txt")
    assert not (tmp_path / "none.json").exists()


def test_a_corpus_without_questions_is_refused(tmp_path: Path, json_lines: Any, tar: Any, photograph: Any) -> None:
    tar("images.tar", {"a.jpg": photograph(1)})
    prepare("image-text", json_lines("c.jsonl", [{"image": "a.jpg", "captions": ["x"]}]), "-o", tmp_path / "c")
    with pytest.raises(WorkbenchError, match="corpus 'c' has no questions"):
        prepare("answers", tmp_path / "c", "-o", tmp_path / "answers.json")


def test_answers_that_are_read_keep_their_signs(questions: Path, tmp_path: Path, tar: Any, photograph: Any) -> None:
    tar("pages.tar", {"7.png": photograph(3)})
    reported = {"question": "When?", "image": "documents/7.png", "answers": ["1/8/93"]}
    rows = [{**reported, "questionId": 1}, {**reported, "questionId": 2}]
    (tmp_path / "val_v1.0.json").write_text(json.dumps({"dataset_name": "docvqa", "data": rows}))
    pages = ("--images", tmp_path / "pages.tar", "-o", tmp_path / "pages", "--workers", 1)
    prepare("image-text", tmp_path / "val_v1.0.json", *pages)
    prepare("answers", tmp_path / "pages", "--min-count", 2, "-o", tmp_path / "read.json")
    assert json.loads((tmp_path / "read.json").read_text()) == ["1/8/93"]
    with pytest.raises(WorkbenchError, match=r"some of these corpora have answers .* one list for each kind"):
        prepare("answers", tmp_path / "pages", questions, "-o", tmp_path / "both.json")
