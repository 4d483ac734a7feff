"""The image-text format `textvqa`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    return {
        "question": "what is the brand of this camera?",
        "image_id": str(i),
        "image_classes": ["Cassette deck", "Printer"],
        "flickr_original_url": "https://farm2.staticflickr.com/4/565_o.jpg",
        "image_width": 24,
        "image_height": 16,
        "answers": ["nous les gosses", "dakota", "clos culombu", *["dakota digital"] * 7],
        "question_tokens": ["what", "is", "the", "brand", "of", "this", "camera"],
        "question_id": 34602 + i,
        "set_name": "train",
    }


def words(image: str) -> dict[str, Any]:
    box = {"width": 0.25, "height": 0.5, "rotation": 0, "top_left_x": 0.5, "top_left_y": 0.25}
    outside = box | {"top_left_x": 1.5}
    return {
        "image_id": image,
        "ocr_tokens": ["DAKOTA", "DIGITAL"],
        "ocr_info": [{"word": "DAKOTA", "bounding_box": box}, {"word": "DIGITAL", "bounding_box": outside}],
        "set_name": "train",
    }


def published(rows: list[dict[str, Any]]) -> str:
    reported = {"dataset_type": "train", "dataset_name": "textvqa", "dataset_version": "0.5.1", "data": rows}
    return json.dumps(reported, indent=1)


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=lambda records: published([row(i) for i in range(records)]),
    file="TextVQA_0.5.1_train.json",
    alongside=images,
)


def test_questions_with_the_words_of_another_file(tmp_path, tar, photograph, read):
    tar("images.tar", {"7.jpg": photograph(1), "8.jpg": photograph(2)})
    asked, read_words = tmp_path / "TextVQA_0.5.1_train.json", tmp_path / "TextVQA_Rosetta_OCR_v0.2_train.json"
    test = {name: value for name, value in row(8).items() if name != "answers"}
    asked.write_text(published([row(7), row(7) | {"question_id": 1}, test]))
    read_words.write_text(json.dumps({"data": [words("7")]}))
    for inputs in ((asked, read_words), (read_words, asked)):
        first, second = read("image-text", *inputs)
        assert [q["question_id"] for q in first["questions"]] == [34609, 1]
        assert len(first["questions"][0]["answers"]) == 10
        assert first["ocr_tokens"] == ["DAKOTA", "DIGITAL"]
        assert first["ocr_boxes"] == [[0.5, 0.25, 0.75, 0.75], []]
        assert first["meta"]["split"] == "train"
        assert second["questions"][0]["answers"] == []
        assert "ocr_tokens" not in second
    with pytest.raises(WorkbenchError, match=r"no questions in TextVQA_Rosetta_OCR"):
        read("image-text", read_words)


def test_words_that_stand_with_the_question(tmp_path, tar, photograph, read):
    tar("images.tar", {"7.jpg": photograph(1)})
    path = tmp_path / "q.json"
    path.write_text(published([row(7) | {"ocr_tokens": ["a", " ", "b"]}]))
    (sample,) = read("image-text", path)
    assert sample["ocr_tokens"] == ["a", "b"]
    assert "ocr_boxes" not in sample
    path.write_text(published([row(7) | {"ocr_info": [{"text": "a"}]}]))
    with pytest.raises(WorkbenchError, match=r"q\.json:data\[0\]: words that were read, in a form that is not known"):
        read("image-text", path)
