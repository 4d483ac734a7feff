"""The image-text format `ocr-vqa`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def book(i: int) -> dict[str, Any]:
    return {
        "imageURL": f"http://ecx.images-amazon.com/images/I/{i}.png",
        "questions": ["Who wrote this book?", "What is the title of this book?"],
        "answers": ["Diana Chung", "Natural Beauty"],
        "title": "Natural Beauty",
        "authorName": "Diana Chung",
        "genre": "Crafts, Hobbies & Home",
        "split": 3,
    }


CASE = ReaderCase(
    {},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=lambda records: json.dumps({str(i): book(i) for i in range(records)}, indent=1),
    file="dataset.json",
    alongside=images,
)


def test_the_questions_on_a_cover_are_one_record(tmp_path, tar, photograph, read):
    tar("images.tar", {"0761183272.png": photograph(1)})
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps({"0761183272": book(0)}))
    (sample,) = read("image-text", path)
    assert [(q["question_id"], q["answers"]) for q in sample["questions"]] == [
        ("0761183272-0", ["Diana Chung"]),
        ("0761183272-1", ["Natural Beauty"]),
    ]
    assert (sample["meta"]["split"], sample["meta"]["author"]) == ("test", "Diana Chung")
    path.write_text(json.dumps({"0761183272": book(0) | {"answers": ["Diana Chung"]}}))
    with pytest.raises(WorkbenchError, match=r"dataset\.json:0: not an answer for each question \(2 and 1\)"):
        read("image-text", path)
