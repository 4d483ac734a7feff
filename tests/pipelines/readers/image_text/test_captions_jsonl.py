"""The image-text format `captions-jsonl`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import images, json_lines

CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=json_lines(lambda i: {"image": f"{i}.png", "captions": ["one", "two"]}),
    beside=images,
)
