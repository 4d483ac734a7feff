"""The export of easy-VQA has every image and question of the package."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pipelines.demo.easy_vqa_files import question_type, write_easy_vqa


def test_export(tmp_path: Path) -> None:
    easy_vqa = pytest.importorskip("easy_vqa", reason="needs the package easy-vqa")
    counts = write_easy_vqa(tmp_path, train=None, test=None)
    assert counts == {"images_train": 4000, "questions_train": 38575, "images_test": 1000, "questions_test": 9673}
    seen: set[int] = set()
    for split, package in (("train", easy_vqa.get_train_questions()), ("test", easy_vqa.get_test_questions())):
        lines = [json.loads(line) for line in (tmp_path / f"questions_{split}.jsonl").read_text().splitlines()]
        assert [(r["question"], r["answer"]) for r in lines] == list(zip(package[0], package[1], strict=True))
        assert all(r["answers"] == [r["answer"]] for r in lines)
        for record, number in zip(lines, package[2], strict=True):
            assert record["image"] == f"easy_vqa_{split}_{number:05d}.png"
        assert {r["image"] for r in lines} == {p.name for p in (tmp_path / f"images_{split}").iterdir()}
        ids = {r["question_id"] for r in lines}
        assert len(ids) == len(lines)
        assert not ids & seen
        seen |= ids
        if split == "test":
            assert Counter(r["answer_type"] for r in lines)["yes/no"] == 7136


def test_the_first_images_come_with_all_their_questions(tmp_path: Path) -> None:
    easy_vqa = pytest.importorskip("easy_vqa", reason="needs the package easy-vqa")
    counts = write_easy_vqa(tmp_path, train=5, test=3)
    assert (counts["images_train"], counts["images_test"]) == (5, 3)
    lines = [json.loads(line) for line in (tmp_path / "questions_train.jsonl").read_text().splitlines()]
    asked = [
        q
        for q, image in zip(easy_vqa.get_train_questions()[0], easy_vqa.get_train_questions()[2], strict=True)
        if image < 5
    ]
    assert [line["question"] for line in lines] == asked
    assert {line["image"] for line in lines} == {path.name for path in (tmp_path / "images_train").iterdir()}


def test_question_types() -> None:
    assert question_type("is there not a black shape in the image?", "yes") == ("is there not", "yes/no")
    assert question_type("is a red shape present?", "no") == ("is there", "yes/no")
    assert question_type("what is the red shape?", "circle") == ("what shape", "other")
    assert question_type("what color is the shape?", "teal") == ("what color", "other")
