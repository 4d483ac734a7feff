"""FewRel's published file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError

TOKENS = ["Oslo", "lies", "in", "Norway", ",", "Oslo", "says", "."]
ROW = {"tokens": TOKENS, "h": ["oslo", "Q585", [[0], [5]]], "t": ["norway", "Q20", [[3]]]}


CASE = ReaderCase(
    excused={"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=lambda records: json.dumps({"P17": [ROW] * records}),
    file="val_wiki.json",
)


def write(path: Path, *more: Any) -> Path:
    path.write_text(json.dumps({"P17": [ROW, *more], "P131": [{**ROW, "h": ROW["t"], "t": ROW["h"]}]}), "utf-8")
    return path


def test_a_sentence_of_each_relation_is_a_record(tmp_path: Path, stored: Any) -> None:
    path = write(tmp_path / "val_wiki.json")
    assert detect("text", [path]) == "fewrel"
    prepare("text", path, "-o", tmp_path / "fewrel", "--workers", 1)
    first, second = stored(tmp_path / "fewrel")
    assert first["text"] == " ".join(TOKENS)
    assert first["marks"] == [[0, 4, "head"], [13, 19, "tail"]]
    assert first["spans"] == [[0, 4, "Q585", 1.0], [13, 19, "Q20", 1.0]]
    assert [s["labels"]["relation"] for s in (first, second)] == ["P17", "P131"]
    assert second["marks"] == [[0, 4, "tail"], [13, 19, "head"]]


WRONG = (
    {**ROW, "h": ["oslo", "Q585"]},
    {**ROW, "h": ["oslo", "Q585", [[99]]]},
    {**ROW, "h": ["oslo", "Q585", [[]]]},
    "Oslo",
    {**ROW, "tokens": "Oslo"},
    {"tokens": TOKENS, "h": None, "t": ROW["t"]},
    {**ROW, "tokens": ["\ud800"]},
)


@pytest.mark.parametrize("row", WRONG)
def test_what_does_not_fit_is_refused_or_left_out(row: Any, tmp_path: Path, stored: Any) -> None:
    path = write(tmp_path / "val_wiki.json", row)
    with pytest.raises(WorkbenchError, match=r"val_wiki\.json:P17:1"):
        prepare("text", path, "-o", tmp_path / "strict", "--workers", 1)
    prepare("text", path, "-o", tmp_path / "left", "--workers", 1, "--on-error", "skip")
    assert len(stored(tmp_path / "left")) == 2
