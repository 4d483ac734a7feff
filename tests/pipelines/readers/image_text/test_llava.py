"""The image-text format `llava`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.contracts.raw_inputs import json_lines as rows
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    return {
        "id": f"00000003347{i}",
        "image": f"{i}.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat are the colors of the bus?"},
            {"from": "gpt", "value": "The bus is white and red."},
            {"from": "human", "value": "Is it parked?"},
            {"from": "gpt", "value": "No, it drives."},
        ],
    }


CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"}, text=rows(row), alongside=images
)


def test_turns_are_questions_and_answers(json_lines, tar, photograph, read):
    tar("images.tar", {"1.png": photograph(1)})
    detail = row(1) | {"conversations": [{"from": "system", "value": "Be kind."}, *row(1)["conversations"][:2]]}
    path = json_lines("llava_instruct_150k.json", [row(1), detail])
    (sample,) = read("image-text", path)
    assert [(q["question"], q["answers"]) for q in sample["questions"][:2]] == [
        ("What are the colors of the bus?", ["The bus is white and red."]),
        ("Is it parked?", ["No, it drives."]),
    ]
    assert len({q["question_id"] for q in sample["questions"]}) == 3, "the set's own ids occur several times"
    (captioned,) = read("image-text", path, turns="captions")
    assert captioned["captions"][1] == "No, it drives."
    assert "questions" not in captioned


def test_texts_without_an_image_are_counted(json_lines, tar, photograph, read):
    tar("images.tar", {"1.png": photograph(1)})
    alone = {name: value for name, value in row(1).items() if name != "image"}
    with pytest.raises(WorkbenchError, match=r"mix\.json:2: a conversation without an image"):
        read("image-text", json_lines("mix.json", [row(1), alone]))
    twice = row(1) | {"conversations": row(1)["conversations"][1:]}
    with pytest.raises(
        WorkbenchError, match=r"one\.json:1: not a turn of human and one of gpt behind it \(from 'gpt'\)"
    ):
        read("image-text", json_lines("one.json", [twice]))
