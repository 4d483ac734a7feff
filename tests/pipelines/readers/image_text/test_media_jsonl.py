"""The image-text format `media-jsonl`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import images, json_lines


def row(i: int) -> dict[str, Any]:
    return {"media": {"left": f"{i}.png", "right": f"{i}.png"}, "captions": ["both"]}


CASE = ReaderCase(excused={"streams": "the list of the media is held"}, text=json_lines(row), beside=images)
