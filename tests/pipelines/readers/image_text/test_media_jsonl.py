"""The image-text format `media-jsonl`."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, json_lines


def row(i: int) -> dict[str, Any]:
    return {"media": {"left": f"{i}.png", "right": f"{i}.png"}, "captions": ["both"]}


CASE = ReaderCase(excused={"streams": "the list of the media is held"}, text=json_lines(row), alongside=images)


@pytest.mark.parametrize("listed", ["a.png", ["a.png"], {"image": "a.png"}])
def test_one_image_is_the_records_image(json_lines, tar, photograph, read, listed):
    """Next to `dev.jsonl` in `images_dev.tar`; two statements about it are two records of one hash, which a split keeps
    together."""
    tar("images_dev.tar", {"a.png": photograph(1, format="PNG")})
    rows = [{"photographs": listed, "says": says, "label": says == "true"} for says in ("true", "false")]
    reported = {"media_field": "photographs", "fields": {"captions": "says", "labels": ["label"]}}
    first, second = read("image-text", json_lines("dev.jsonl", rows), format="media-jsonl", **reported)
    assert first["image"] == photograph(1, format="PNG")
    assert "media" not in first
    assert first["meta"]["sha256"] == second["meta"]["sha256"] == hashlib.sha256(first["image"]).hexdigest()
    assert [one["labels"]["label"] for one in (first, second)] == [True, False]
