"""The image-text format `image-table`: images inside of Parquet and Arrow, written as `datasets` lays them out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.contracts.cases import ReaderCase
from tests.pipelines.test_columnar import arrow_stream, parquet, saved_to_disk
from tests.pipelines.test_commands import prepare
from workbench.corpora.corpus import Corpus
from workbench.corpora.verify import verify


def photograph(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (24, 16), (seed * 40 % 256, 90, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def cell(seed: int) -> dict[str, Any]:
    return {"bytes": photograph(seed), "path": f"{seed}.png"}


CASE = ReaderCase(
    excused={"streams": "some rows are read at once", "long lines": "there are no lines"},
    text=lambda records: parquet([{"image": cell(i), "caption": [f"a dog {i}"]} for i in range(records)]),
    file="train-00000-of-00001.parquet",
    needs="pyarrow",
)


def test_captions_of_any_form(tmp_path: Path, read: Any) -> None:
    rows = [
        {"image": cell(0), "captions": ["a dog", "a cat"], "image_id": 7, "score": float("nan")},
        {"image": cell(1), "captions": ["a bird"], "image_id": 8, "score": 0.5},
    ]
    (tmp_path / "test-00000-of-00001.parquet").write_bytes(parquet(rows))
    first, second = read("image-text", tmp_path / "test-00000-of-00001.parquet")
    assert first["captions"] == ["a dog", "a cat"]
    assert first["image"] == photograph(0)
    assert first["meta"]["image"] == "0.png"
    assert (first["meta"]["image_id"], first["meta"]["split"], second["meta"]["score"]) == (7, "test", 0.5)
    assert "score" not in first["meta"]


def test_bare_bytes_and_named_columns(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet([{"jpg": photograph(1), "said": "a dog"}]))
    (sample,) = read("image-text", tmp_path / "a.parquet", caption_column="said")
    assert (sample["captions"], sample["image"], sample["key"]) == (["a dog"], photograph(1), "a-1")


def test_questions_with_answers_of_every_form(tmp_path: Path, read: Any, photograph: Any) -> None:
    asked = {"image": {"bytes": photograph(1), "path": None}, "question": "What?"}
    answers = [{"answer": "dog", "answer_id": 1}, {"answer": "cat", "answer_id": 2}]
    (tmp_path / "a.parquet").write_bytes(parquet([asked | {"question_id": 4, "answers": answers}]))
    (tmp_path / "b.parquet").write_bytes(parquet([asked | {"answers": ["dog", "dog"]}]))
    (tmp_path / "c.parquet").write_bytes(parquet([asked | {"questionId": "q1", "answer": "dog"}]))
    (tmp_path / "d.parquet").write_bytes(parquet([asked | {"question_id": 5}]))
    found = [s["questions"][0] for name in "abcd" for s in read("image-text", tmp_path / f"{name}.parquet")]
    assert [(q["question_id"], q["answers"]) for q in found] == [
        (4, ["dog", "cat"]),
        ("b-1", ["dog", "dog"]),
        ("q1", ["dog"]),
        (5, []),
    ]


def test_classes_have_their_names(tmp_path: Path, read: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    schema = pyarrow.Table.from_pylist([{"image": cell(0), "label": 1}]).schema.with_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    rows = [{"image": cell(0), "label": 1}, {"image": cell(1), "label": -1}]
    (tmp_path / "a.parquet").write_bytes(parquet(rows, schema))
    first, second = read("image-text", tmp_path / "a.parquet")
    assert first["labels"] == {"label": "dog"}
    assert "labels" not in second


def test_an_image_that_is_a_path_is_found(tmp_path: Path, read: Any, drops: Any) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(photograph(3))
    rows = [{"image": {"bytes": None, "path": f"/far/away/{n}.png"}, "text": "x"} for n in "ab"]
    (tmp_path / "t.parquet").write_bytes(parquet([*rows, {"image": cell(1), "text": "y"}]))
    first, second = read("image-text", tmp_path / "t.parquet")
    assert (first["image"], second["captions"]) == (photograph(3), ["y"])
    assert drops("image-text", tmp_path / "t.parquet") == ["image not found"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_saved_folder_becomes_a_corpus(workers: int, tmp_path: Path, stored: Any) -> None:
    rows = [{"image": cell(i), "caption": f"photograph {i}"} for i in range(6)]
    saved_to_disk(tmp_path / "saved", {"train": rows[:4], "test": rows[4:]})
    prepare("image-text", tmp_path / "saved", "-o", tmp_path / "c", "--workers", workers, "--own-split", "test")
    assert [s["captions"] for s in stored(tmp_path / "c")] == [[f"photograph {i}"] for i in range(4)]
    assert [s["captions"] for s in stored(tmp_path / "c-test")] == [["photograph 4"], ["photograph 5"]]
    assert list(verify(Corpus.open(tmp_path / "c"))) == []


def test_an_arrow_stream_is_read(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.arrow").write_bytes(arrow_stream([{"image": cell(2), "text": "x"}]))
    assert read("image-text", tmp_path / "a.arrow")[0]["captions"] == ["x"]
