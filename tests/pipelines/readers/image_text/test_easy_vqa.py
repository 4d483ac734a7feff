"""The image-text format `easy-vqa`."""

from __future__ import annotations

import json

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def text(records: int) -> str:
    return json.dumps([["what shape is present?", "circle", i] for i in range(records)])


CASE = ReaderCase(
    {},
    {"streams": "the questions of all images are held", "long lines": "a JSON document has no lines"},
    text=text,
    file="questions.json",
    alongside=images,
)


def test_questions_of_an_image_are_one_record(tmp_path, photograph, read):
    """As published: train/questions.json next to train/images/."""
    (tmp_path / "train" / "images").mkdir(parents=True)
    for i in range(2):
        (tmp_path / "train" / "images" / f"{i}.png").write_bytes(photograph(i, format="PNG"))
    rows = [["what shape is present?", "circle", 0], ["is there a red shape?", "no", 1], ["is it red?", "yes", 0]]
    path = tmp_path / "train" / "questions.json"
    path.write_text(json.dumps(rows))
    first, second = read("image-text", path)
    assert (first["key"], first["image"]) == ("0", photograph(0, format="PNG"))
    assert first["questions"] == [
        {"question_id": 1, "question": "what shape is present?", "answers": ["circle"], "answer": "circle"},
        {"question_id": 3, "question": "is it red?", "answers": ["yes"], "answer": "yes"},
    ]
    assert [question["answers"] for question in second["questions"]] == [["no"]]
    with pytest.raises(WorkbenchError, match="one list of questions at a time"):
        read("image-text", path, path)


@pytest.mark.parametrize("row", [["what?", "red"], ["what?", "red", "0"], ["what?", None, 0], {"a": 1}, ["", "", True]])
def test_rows_of_another_form(tmp_path, tar, photograph, read, row):
    tar("images.tar", {"0.png": photograph(0, format="PNG")})
    (tmp_path / "questions.json").write_text(json.dumps([["what?", "red", 0], row]))
    with pytest.raises(WorkbenchError, match=r"questions\.json:2: not of the form \[question, answer, image id\]"):
        read("image-text", tmp_path / "questions.json")
