"""What all formats of visual questions refuse alike: blank questions, blank answers, ids that occur twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Limits
from pipelines.readers.formats import make_reader
from tests.pipelines.jobs import Job, prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

Ask = tuple[int, str, str]
"""A question's id, itself, its answer."""


def _official(asked: list[Ask]) -> dict[str, Any]:
    questions = [{"image_id": 7, "question_id": name, "question": text} for name, text, _ in asked]
    different = {name: answer for name, _, answer in reversed(asked)}
    reported = [{"image_id": 7, "question_id": name, "answers": [{"answer": a}]} for name, a in different.items()]
    return {"q.json": {"task_type": "Open-Ended", "questions": questions}, "a.json": {"annotations": reported}}


def _row(name: int, text: str, answer: str) -> dict[str, Any]:
    return {"image": "7.png", "question_id": name, "question": text, "answer": answer}


def _media(name: int, text: str, answer: str) -> dict[str, Any]:
    question = {"question_id": name, "question": text, "answers": [answer]}
    return {"media": {"left": "7.png", "right": "7.png"}, "captions": ["two"], "questions": [question]}


FORMATS: dict[str, Callable[[list[Ask]], dict[str, Any]]] = {
    "vqa-jsonl": lambda asked: {"q.json": [_row(*one) for one in asked]},
    "vqa-official": _official,
    "easy-vqa": lambda asked: {"q.json": [[text, answer, 7] for _, text, answer in asked]},
    "gqa": lambda asked: {"q.json": {str(n): {"imageId": "7", "question": q, "answer": a} for n, q, a in asked}},
    "visual-genome": lambda asked: {
        "q.json": [{"id": 7, "qas": [{"qa_id": n, "question": q, "answer": a} for n, q, a in asked]}]
    },
    "daquar": lambda asked: {"q.txt": "".join(f"{q} in the image7 ?\n{a}\n" for _, q, a in asked)},
    "media-jsonl": lambda asked: {"q.json": [_media(*one) for one in asked]},
}
NAMES = {"image_name": "{id}.png"}
OPTIONS = {name: NAMES for name in FORMATS if name not in ("vqa-jsonl", "media-jsonl")}


@pytest.fixture
def prepared(tmp_path: Path, tar: Any, photograph: Any) -> Callable[..., tuple[list[dict[str, Any]], dict[str, int]]]:
    """The questions of what a format makes of files, and what was dropped by reason."""

    def run(name: str, content: dict[str, Any], on_error: Any = "skip") -> tuple[list[dict[str, Any]], dict[str, int]]:
        tar("images.tar", {"7.png": photograph(1, format="PNG")})
        for file, tree in content.items():
            (tmp_path / file).write_text(tree if isinstance(tree, str) else json.dumps(tree))
        files = [tmp_path / file for file in content]
        reader = make_reader("image-text", name, files, OPTIONS.get(name, {}))
        job = Job(reader, "image-text", tmp_path / "corpus", on_error=on_error)
        found = prepare(job, files, Limits()).dropped
        dropped = {reason.removeprefix(f"{type(reader).__name__}: "): count for reason, count in found.items()}
        samples = Corpus.open(tmp_path / "corpus")
        return [q for i in range(samples.records) for q in samples.read(0, i)["questions"]], dropped

    return run


@pytest.mark.parametrize("name", FORMATS)
def test_a_question_whose_answers_are_blank_is_counted(name: str, prepared: Any) -> None:
    content = FORMATS[name]([(1, "what is there", "bed"), (2, "what is here", " "), (3, "who is there", "cat")])
    questions, dropped = prepared(name, content)
    assert [question["answers"] for question in questions] == [["bed"], ["cat"]]
    reason = "a question without a line of answers" if name == "daquar" else "a question whose answers are all blank"
    assert dropped == {reason: 1}


@pytest.mark.parametrize("name", FORMATS)
def test_a_blank_question_is_counted(name: str, prepared: Any) -> None:
    content = FORMATS[name]([(1, "what is there", "bed"), (2, "  ", "lamp"), (3, "who is there", "cat")])
    questions, dropped = prepared(name, content)
    assert [question["answers"] for question in questions] == [["bed"], ["cat"]]
    assert dropped == {"a blank question": 1}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wrong", [("  ", "lamp"), ("what is here", "")])
def test_blanks_stop_the_preparation(name: str, wrong: tuple[str, str], prepared: Any) -> None:
    with pytest.raises(WorkbenchError, match=r"blank|without a line of answers"):
        prepared(name, FORMATS[name]([(1, "what is there", "bed"), (2, *wrong)]), "stop")


@pytest.mark.parametrize("name", ["vqa-jsonl", "vqa-official", "visual-genome"])
def test_an_id_that_occurs_twice_is_counted(name: str, prepared: Any) -> None:
    questions, dropped = prepared(name, FORMATS[name]([(1, "what?", "bed"), (1, "where?", "bed"), (2, "who?", "cat")]))
    assert [question["question"] for question in questions] == ["what?", "who?"]
    assert dropped == {"a question_id that an earlier question has": 1}


def test_ids_of_several_files_are_compared(tmp_path: Path, prepared: Any) -> None:
    """Of GQA an id is a key, which a file has once."""
    first = FORMATS["gqa"]([(1, "what?", "bed")])["q.json"]
    with pytest.raises(WorkbenchError, match=r"r\.json:0: a question_id that an earlier question has \('1', see q\.js"):
        prepared("gqa", {"q.json": first, "r.json": first}, "stop")


def test_the_blank_ones_of_several_answers_count_as_annotators(prepared: Any) -> None:
    row = {**_row(1, "what?", " "), "answers": ["", "bed", {"answer": None}, "cat"]}
    unanswered = {**_row(2, "what?", ""), "answers": []}
    questions, dropped = prepared("vqa-jsonl", {"q.json": [row, unanswered]})
    assert [question["answers"] for question in questions] == [["", "bed", "", "cat"], []], (
        "a test set has none, and no fault"
    )
    assert not any("answer" in question for question in questions)
    assert not dropped


@pytest.mark.parametrize("name", ["image_id", "question_id"])
def test_true_is_no_number(name: str, prepared: Any) -> None:
    content = FORMATS["vqa-official"]([(1, "what?", "bed"), (2, "who?", "cat")])
    content["q.json"]["questions"][1][name] = True
    assert prepared("vqa-official", content)[1] == {f"field {name!r} has the wrong type": 1}
