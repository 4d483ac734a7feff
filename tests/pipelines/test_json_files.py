"""Rows in one JSON list."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import json_files as json_list
from pipelines.sources.json_files import elements
from workbench.core.errors import WorkbenchError

ROWS = [{"text": "é" * 40 + f" [{i}] }}, {{"} for i in range(9)]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None) -> None:
    """Whatever the layout, and where the pieces end: in an element, a character, or between two."""
    file = tmp_path / "rows.json"
    file.write_text("\ufeff " + json.dumps(ROWS, indent=indent, ensure_ascii=False) + "\n", "utf-8")
    for size in (1, 7, 64, 10_000):
        monkeypatch.setattr(json_list, "READ_SIZE", size)
        assert [json.loads(row) for row in elements(file)] == ROWS
    file.write_text("[ ]")
    assert list(elements(file)) == []


def test_lines_and_lists_are_read_alike(tmp_path: Path, read: Any) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with gzip.open(tmp_path / "rows.json.gz", "wt") as file:
        json.dump(ROWS, file)
    lines, listed = (read("text", tmp_path / name) for name in ("rows.jsonl", "rows.json.gz"))
    assert [(s["key"], s["text"]) for s in lines] == [(s["key"], s["text"]) for s in listed]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"text": "a"}, {"text": ', r"rows\.json: the JSON list is broken at element 2.*cut off"),
        ('[{"text": "a"} {"text": "b"}]', r"at element 1: , or \] expected, found '\{'"),
        ('[{"text": "a"}', "at element 1: the file ends here"),
        ('[{"text": "a"}, ]', "broken at element 2"),
    ],
)
def test_a_broken_list_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(WorkbenchError, match=message):
        list(elements(tmp_path / "rows.json"))


def test_a_list_that_is_cut_off_in_its_compression(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(ROWS).encode())
    (tmp_path / "rows.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkbenchError, match="damaged or cut off"):
        list(elements(tmp_path / "rows.json.gz"))
