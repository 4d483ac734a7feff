"""A record that does not fit its format is counted where the user says so, whichever reader finds it and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Job
from pipelines.preparing.limits import Limits
from pipelines.preparing.runner import prepare
from pipelines.readers.formats import make_reader
from workbench.errors import WorkbenchError

CAPTION: dict[str, Any] = {"image": "a.png", "captions": ["a"]}
QUESTION: dict[str, Any] = {"image": "a.png", "question_id": 1, "question": "what?", "answer": "a"}
LINES = {
    "captions-jsonl": [CAPTION, {**CAPTION, "captions": [1]}, "not json", {**CAPTION, "captions": ["\ud800"]}],
    "vqa-jsonl": [QUESTION, {**QUESTION, "answer": 7}, "{", {"image": "a.png"}],
    "media-jsonl": [
        {"media": {"left": "a.png"}, "captions": ["a"]},
        {"media": 3, "captions": ["a"]},
        "[1]",
        {"captions": ["a"]},
    ],
}
TABLES = {
    "captions-table": "image,caption\na.png,one\na.png,two,three\n\xff\n",
    "flickr-tokens": "a.png#0\tone\nno tab\n\xff#0\tx\n",
}


def prepared(folder: Path, name: str, file: Path, on_error: Any) -> dict[str, int]:
    reader = make_reader("image-text", name, [file], {})
    job = Job(reader, "image-text", folder / f"{name}-{on_error}", on_error=on_error)
    return prepare(job, [file], Limits(workers=1)).dropped


@pytest.mark.parametrize("name", LINES)
def test_lines_that_do_not_fit_are_counted(
    name: str, tmp_path: Path, tar: Callable[..., Path], picture: Callable[..., bytes]
) -> None:
    tar("images.tar", {"a.png": picture(1, format="PNG")})
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in LINES[name]))
    assert sum(prepared(tmp_path, name, file, "skip").values()) == 3
    with pytest.raises(WorkbenchError, match=r"lines\.jsonl:2: .*--on-error skip"):
        prepared(tmp_path, name, file, "stop")


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_do_not_fit_are_counted(
    name: str, tmp_path: Path, tar: Callable[..., Path], picture: Callable[..., bytes]
) -> None:
    tar("images.tar", {"a.png": picture(1, format="PNG")})
    file = tmp_path / ("rows.csv" if "table" in name else "rows.token")
    file.write_bytes(TABLES[name].encode("latin1"))
    assert sum(prepared(tmp_path, name, file, "skip").values()) == 2
    with pytest.raises(WorkbenchError, match=r"rows\.\w+:\d: .*--on-error skip"):
        prepared(tmp_path, name, file, "stop")
