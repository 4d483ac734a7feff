"""The image-text format `visual-genome`."""

from __future__ import annotations

import json

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def region(i: int, phrase: str = "the dog") -> dict[str, object]:
    return {"region_id": i, "width": 8, "height": 9, "x": 1, "y": 2, "phrase": phrase, "image_id": i}


def text(records: int) -> str:
    rows = (json.dumps({"id": i, "regions": [region(i)]}) for i in range(records))
    return "[" + ",\n ".join(rows) + "]"


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "what belongs to an image is gathered from the whole file", "long lines": "a JSON list has no lines"},
    text=text,
    file="region_descriptions.json",
    alongside=images,
)


def test_phrases_and_questions_of_an_image_in_one_of_two_folders(tmp_path, photograph, read):
    asked = {"a_objects": [], "question": "What?", "image_id": 1, "qa_id": 986769, "answer": "A dog.", "q_objects": []}
    described = [
        {"id": 1, "regions": [region(1), region(1, "grass "), region(1)]},
        {"image_id": 2, "regions": [region(2)]},  # as the set's own description has it
    ]
    (tmp_path / "region_descriptions.json").write_text(json.dumps(described))
    (tmp_path / "question_answers.json").write_text(json.dumps([{"id": 1, "qas": [asked]}]))
    for folder, name in (("VG_100K", "2.jpg"), ("VG_100K_2", "1.jpg")):
        (tmp_path / "vg" / folder).mkdir(parents=True)
        (tmp_path / "vg" / folder / name).write_bytes(photograph(int(name[0])))
    files = [tmp_path / "region_descriptions.json", tmp_path / "question_answers.json"]
    first, second = read("image-text", *files, images=[str(tmp_path / "vg")])
    assert (first["key"], first["captions"]) == ("1", ["the dog", "grass"])
    assert first["caption_boxes"] == [[1 / 24, 2 / 16, 9 / 24, 11 / 16]] * 2, "pixels of an image of 24 x 16"
    assert first["questions"] == [
        {"question_id": 986769, "question": "What?", "answers": ["A dog."], "answer": "A dog."}
    ]
    assert first["image"] == photograph(1)
    assert "questions" not in second
    (tmp_path / "question_answers.json").write_text(json.dumps([{"id": 1, "qas": [{"qa_id": 1, "answer": "x"}]}]))
    with pytest.raises(WorkbenchError, match=r"question_answers\.json:1: no field 'question'"):
        read("image-text", files[1], images=[str(tmp_path / "vg")])


def test_boxes_are_cut_to_the_image(tmp_path, photograph, read):
    """One reaches beyond it, one lies outside, one has no place; captions keep their order."""
    beyond = region(1, "a tree") | {"x": -4, "y": 8, "width": 100, "height": 100}
    outside = region(1, "a cloud") | {"x": 30, "y": 2}
    nowhere = {"phrase": "a wind", "region_id": 4}
    described = [{"id": 1, "regions": [beyond, outside, nowhere, region(1)]}]
    (tmp_path / "region_descriptions.json").write_text(json.dumps(described))
    (tmp_path / "1.jpg").write_bytes(photograph(1))
    (found,) = read("image-text", tmp_path / "region_descriptions.json", images=[str(tmp_path)])
    assert found["captions"] == ["a tree", "a cloud", "a wind", "the dog"]
    assert found["caption_boxes"] == [[0.0, 0.5, 1.0, 1.0], [], [], [1 / 24, 2 / 16, 9 / 24, 11 / 16]]
