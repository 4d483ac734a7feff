"""The image-text format `vqa-jsonl`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import images, json_lines


def row(i: int) -> dict[str, Any]:
    return {"question_id": i, "image": f"{i}.png", "question": "What?", "answers": ["cat"]}


CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"}, text=json_lines(row), beside=images
)
