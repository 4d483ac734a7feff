"""The image-text format `captions-jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.contracts.raw_inputs import json_lines as as_lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=as_lines(lambda i: {"image": f"{i}.png", "captions": ["one", "two"]}),
    alongside=images,
)


def test_boxes_stay_with_their_captions(tmp_path: Path, photograph: Any, read: Any, json_lines: Any) -> None:
    """Rows of one image are gathered, also where only some say what they speak of."""
    (tmp_path / "1.jpg").write_bytes(photograph(1))
    (tmp_path / "2.jpg").write_bytes(photograph(2))
    rows = [
        {"image": "1.jpg", "caption": "a dog"},
        {"image": "1.jpg", "captions": ["the sea", "a wind"], "boxes": [[0, 0.5, 1, 1], []]},
        {"image": "2.jpg", "caption": "a cat"},
    ]
    first, second = read("image-text", json_lines("pairs.jsonl", rows), images=[str(tmp_path)])
    assert (first["captions"], first["caption_boxes"]) == (["a dog", "the sea", "a wind"], [[], [0, 0.5, 1, 1], []])
    assert "boxes" not in first["meta"]
    assert "caption_boxes" not in second


@pytest.mark.parametrize(
    ("boxes", "reported"),
    [
        ([[0, 0, 1, 1]], "1 boxes for 2 captions"),
        ([[0, 0, 9, 8], []], "is not x1 < x2 and y1 < y2 in 0..1"),
        ([[0.5, 0, 0.5, 1], []], "is not x1 < x2 and y1 < y2 in 0..1"),
        ([[0, 0, 1], []], r"is neither \[x1, y1, x2, y2\]"),
        ([[0, 0, float("nan"), 1], []], r"is neither \[x1, y1, x2, y2\]"),
        ("all", "must be|field 'boxes'"),
    ],
)
def test_boxes_of_another_form(
    tmp_path: Path, photograph: Any, read: Any, json_lines: Any, boxes: Any, reported: str
) -> None:
    (tmp_path / "1.jpg").write_bytes(photograph(1))
    row = {"image": "1.jpg", "captions": ["a dog", "the sea"], "boxes": boxes}
    with pytest.raises(WorkbenchError, match=reported):
        read("image-text", json_lines("pairs.jsonl", [row]), images=[str(tmp_path)])
