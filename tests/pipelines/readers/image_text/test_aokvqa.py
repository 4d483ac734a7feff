"""The image-text format `aokvqa`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.contracts.raw_inputs import json_lines as rows
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    return {
        "split": "train",
        "image_id": i,
        "question_id": f"22MexNkBPpdZGX6sxbxVB{i}",
        "question": "What is the man by the bags awaiting?",
        "choices": ["skateboarder", "train", "delivery", "cab"],
        "correct_choice_idx": 3,
        "direct_answers": ["ride", "ride", "bus", "taxi", "travelling", "traffic", "taxi", "cab", "cab", "his ride"],
        "difficult_direct_answer": False,
        "rationales": ["A train would not be on the street.", "He has bags as if he is going someone."],
    }


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "the ids of the questions are held"},
    text=rows(row),
    file="aokvqa_v1p0_train.json",
    alongside=images,
)


def test_choices_answers_and_rationales(json_lines, tar, photograph, read):
    tar("images.tar", {"train2017/000000299207.jpg": photograph(1)})
    hidden = ("correct_choice_idx", "direct_answers", "rationales")
    test = {name: value for name, value in row(2).items() if name not in hidden} | {"difficult_direct_answer": True}
    path = json_lines("aokvqa.json", [row(1) | {"image_id": 299207}, test | {"image_id": 299207}])
    first, second = read("image-text", path)
    (asked,), (hidden,) = first["questions"], second["questions"]
    assert first["choices"][first["answer"]] == "cab"
    assert (asked["answer_type"], len(asked["answers"])) == ("direct", 10)
    assert asked["rationales"] == row(1)["rationales"]
    assert (hidden["answers"], hidden["answer_type"], "answer" in second) == ([], "difficult", False)
    assert (first["key"], first["meta"]["split"]) == (row(1)["question_id"], "train")
    assert {s["meta"]["document"] for s in (first, second)} == {"299207"}
    with pytest.raises(WorkbenchError, match=r"twice\.json:2: a question_id that an earlier question has"):
        read("image-text", json_lines("twice.json", [row(1) | {"image_id": 299207}] * 2))
    with pytest.raises(WorkbenchError, match=r"bad\.json:1: correct_choice_idx is no number of a choice \(4\)"):
        read("image-text", json_lines("bad.json", [row(1) | {"correct_choice_idx": 4}]))
