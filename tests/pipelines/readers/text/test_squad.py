"""SQuAD as published, and as the hub's tables have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.pipelines.test_columnar import parquet
from workbench.core.errors import WorkbenchError

CONTEXT = "Oslo is the capital of Norway."
ASKED = [("q1", "What is the capital?", ["Oslo", "Oslo is"], [0, 0]), ("q2", "Who rules it?", [], [])]


def tree(records: int = 2) -> dict[str, Any]:
    qas = [
        {"id": key, "question": question, "is_impossible": not texts, "answers": [*map(answer, texts, starts)]}
        for key, question, texts, starts in ASKED
    ]
    more = [{**qas[0], "id": f"m{i}"} for i in range(records - 2)]
    return {"version": "2.0", "data": [{"title": "Oslo", "paragraphs": [{"context": CONTEXT, "qas": [*qas, *more]}]}]}


def answer(text: str, start: int) -> dict[str, Any]:
    return {"text": text, "answer_start": start}


CASE = ReaderCase(
    excused={"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=lambda records: json.dumps(tree(max(records, 2))),
    file="train-v2.0.json",
)


def test_both_forms_are_the_same_samples(tmp_path: Path, json_lines: Any, read: Any) -> None:
    published, indented = tmp_path / "train-v2.0.json", tmp_path / "indented.json"
    published.write_text(json.dumps(tree()))
    indented.write_text(json.dumps(tree(), indent=4))
    table = [
        {"id": key, "title": "Oslo", "context": CONTEXT, "question": q, "answers": {"text": t, "answer_start": s}}
        for key, q, t, s in ASKED
    ]
    (tmp_path / "squad.parquet").write_bytes(parquet(table))
    for path in (published, indented, tmp_path / "squad.parquet", json_lines("squad.jsonl", table)):
        assert detect("text", [path]) == "squad"
        first, second = read("text", path)
        assert (first["key"], first["text"], first["second"]) == ("q1", CONTEXT, "What is the capital?")
        assert (first["answers"], first["answer_spans"]) == (["Oslo", "Oslo is"], [[0, 4], [0, 7]])
        assert (second["answers"], second["answer_spans"]) == ([], [])
        assert (second["meta"]["title"], second["meta"]["source"]) == ("Oslo", path.name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answers": [answer("Oslo", 3)]}, r"s\.json:1: an answer is not at its place .'Oslo' at 3"),
        ({"answers": [{"text": "Oslo"}]}, r"s\.json:1: no field 'answer_start'"),
        ({"answers": {"text": ["Oslo"], "answer_start": []}}, r"s\.json:1: answers without a place each"),
        ({"answers": "Oslo"}, r"s\.json:1: field 'answers' has the wrong type"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(tmp_path: Path, read: Any, changed: Any, message: str) -> None:
    path, wrong = tmp_path / "s.json", tree()
    wrong["data"][0]["paragraphs"][0]["qas"][0].update(changed)
    path.write_text(json.dumps(wrong))
    with pytest.raises(WorkbenchError, match=message):
        read("text", path)
