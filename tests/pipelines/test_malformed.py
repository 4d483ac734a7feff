"""A record that does not fit its format is counted where the user says so, whichever reader finds it and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Limits
from pipelines.readers.formats import make_reader
from tests.pipelines.jobs import Job, prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

CAPTION: dict[str, Any] = {"image": "a.png", "captions": ["a"]}
QUESTION: dict[str, Any] = {"image": "a.png", "question_id": 1, "question": "what?", "answer": "a"}
LINES = {
    "captions-jsonl": [CAPTION, {**CAPTION, "captions": [1]}, "not json", {**CAPTION, "captions": ["\ud800"]}],
    "vqa-jsonl": [QUESTION, {**QUESTION, "answers": "no"}, "{", {"image": "a.png"}],
    "media-jsonl": [
        {"media": {"left": "a.png"}, "captions": ["a"]},
        {"media": 3, "captions": ["a"]},
        "[1]",
        {"captions": ["a"]},
    ],
}
SENTENCE = {"split": "val", "filename": "a.png", "sentences": [{"raw": "a"}]}
ASKED = {"image_id": 1, "question_id": 1, "question": "what?"}
GQA_ROW = {"imageId": "a", "question": "what?", "answer": "a"}
FILES: dict[str, list[dict[str, Any]]] = {
    "coco-captions": [
        {
            "images": [{"id": 1, "file_name": "a.png"}, {"id": 2}, 7],
            "annotations": [
                {"image_id": 1, "caption": "a"},
                {"image_id": 1, "caption": 3},
                {"image_id": 1, "caption": "half of \ud800"},
                {"image_id": 2, "caption": "of an image without a name"},
                {"image_id": 9, "caption": "of an image that is not listed"},
                "b",
            ],
        }
    ],
    "karpathy": [
        {
            "images": [
                SENTENCE,
                {**SENTENCE, "split": 1},
                {**SENTENCE, "sentences": ["a"]},
                {**SENTENCE, "sentences": [{"raw": None}]},
                [],
                {"split": "val"},
                {**SENTENCE, "sentences": [{"raw": "\udc00"}]},
            ]
        }
    ],
    "vqa-official": [
        {
            "task_type": "Open-Ended",
            "questions": [
                ASKED,
                {**ASKED, "question": 1},
                {**ASKED, "question_id": 2},
                {**ASKED, "question_id": 3},
                None,
            ],
        },
        {
            "annotations": [
                {"question_id": 1, "answers": [{"answer": "a"}]},
                {"question_id": 3, "answers": [{"answer": "\ud800"}]},
                {"question_id": 2, "answers": "two"},
                {"answers": []},
                [],
            ]
        },
    ],
    "gqa": [
        {"1": GQA_ROW, "2": "what?", "3": {"imageId": "a"}, "4": {**GQA_ROW, "imageId": 5}},
        {"5": {**GQA_ROW, "answer": 1}, "6": {**GQA_ROW, "question": None}, "7": {**GQA_ROW, "question": "\ud800"}},
    ],
}
OPTIONS = {"vqa-official": {"image_name": "a.png"}, "gqa": {"image_name": "{id}.png"}}
TABLES = {
    "captions-table": "image,caption\na.png,one\na.png,two,three\n\xff\n",
    "flickr-tokens": "a.png#0\tone\nno tab\n\xff#0\tx\n",
}


def prepared(folder: Path, name: str, on_error: Any, *files: Path) -> dict[str, int]:
    reader = make_reader("image-text", name, files, OPTIONS.get(name, {}))
    job = Job(reader, "image-text", folder / f"{name}-{on_error}", on_error=on_error)
    return prepare(job, files, Limits()).dropped


@pytest.mark.parametrize("name", LINES)
def test_lines_that_do_not_fit_are_counted(
    name: str, tmp_path: Path, tar: Callable[..., Path], photograph: Callable[..., bytes]
) -> None:
    tar("images.tar", {"a.png": photograph(1, format="PNG")})
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in LINES[name]))
    assert sum(prepared(tmp_path, name, "skip", file).values()) == 3
    with pytest.raises(WorkbenchError, match=r"lines\.jsonl:2: .*--on-error skip"):
        prepared(tmp_path, name, "stop", file)


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_do_not_fit_are_counted(
    name: str, tmp_path: Path, tar: Callable[..., Path], photograph: Callable[..., bytes]
) -> None:
    tar("images.tar", {"a.png": photograph(1, format="PNG")})
    file = tmp_path / ("rows.csv" if "table" in name else "rows.token")
    file.write_bytes(TABLES[name].encode("latin1"))
    assert sum(prepared(tmp_path, name, "skip", file).values()) == 2
    with pytest.raises(WorkbenchError, match=r"rows\.\w+:\d: .*--on-error skip"):
        prepared(tmp_path, name, "stop", file)


@pytest.mark.parametrize("name", FILES)
def test_rows_of_a_whole_json_file_that_do_not_fit_are_counted(
    name: str, tmp_path: Path, tar: Callable[..., Path], photograph: Callable[..., bytes]
) -> None:
    tar("images.tar", {"a.png": photograph(1, format="PNG")})
    files = [tmp_path / f"{number}.json" for number in range(len(FILES[name]))]
    for file, tree in zip(files, FILES[name], strict=True):
        file.write_text(json.dumps(tree))
    dropped = prepared(tmp_path, name, "skip", *files)
    assert sum(dropped.values()) == 6, dropped
    corpus = Corpus.open(tmp_path / f"{name}-skip")
    sample = corpus.read(0, 0)
    assert corpus.records == 1
    assert sample.get("captions", ["a"]) == ["a"]
    assert [question["answers"] for question in sample.get("questions", [{"answers": ["a"]}])] == [["a"]]
    with pytest.raises(WorkbenchError, match=r"\d\.json:.*--on-error skip"):
        prepared(tmp_path, name, "stop", *files)
