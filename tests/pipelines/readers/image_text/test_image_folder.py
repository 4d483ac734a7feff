"""The image-text format `image-folder`: folders laid out as `datasets`' imagefolder and torchvision's ImageFolder."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.pipelines.test_columnar import parquet
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError


def photograph(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (24, 16), (seed * 40 % 256, 90, 200)).save(buffer, "PNG")
    return buffer.getvalue()


CASE = ReaderCase(
    excused={"streams": "images of a kilobyte each lie next to rows of some bytes"},
    text=lambda records: "".join(
        json.dumps({"file_name": f"{i}.png", "text": f"a {i}"}) + "\n" for i in range(records)
    ),
    file="metadata.jsonl",
    alongside=lambda records: {f"{i}.png": photograph(i) for i in range(records)},
    folder=True,
)
ROWS = [
    {"file_name": "a.png", "text": "a dog", "label": "dog", "place": "park"},
    {"file_name": "b.png", "text": "a cat"},
]


def images(folder: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(photograph(seed))


def metadata(place: Path, rows: list[dict[str, Any]]) -> None:
    if place.suffix == ".parquet":
        place.write_bytes(parquet(rows))
    elif place.suffix == ".csv":
        columns = list(rows[0])
        reported = [",".join(columns), *(",".join(row.get(c, "") for c in columns) for row in rows)]
        place.write_text("\n".join(reported) + "\n")
    else:
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv", "metadata.parquet"])
def test_captions_and_labels_of_metadata(name: str, tmp_path: Path, read: Any) -> None:
    images(tmp_path / "set", "a.png", "b.png")
    rows = [ROWS[0], {**ROWS[0], **ROWS[1], "label": "cat"}]
    metadata(tmp_path / "set" / name, rows)
    for given in (tmp_path / "set", tmp_path / "set" / name):
        assert detect("image-text", [given]) == "image-folder"
        first, second = read("image-text", given)
        assert (first["captions"], first["labels"]) == (["a dog"], {"label": "dog"})
        assert (first["image"], second["image"]) == (photograph(0), photograph(1))
        assert first["meta"]["place"] == "park"


def test_each_split_has_metadata_and_images_of_its_own(tmp_path: Path, stored: Any) -> None:
    images(tmp_path / "set", "train/a.png", "test/a.png", "train/b.png", "train/more/c.png", "train/.cache/d.png")
    metadata(tmp_path / "set" / "train" / "metadata.jsonl", [*ROWS, {"file_name": "gone.png", "text": "x"}])
    metadata(tmp_path / "set" / "test" / "metadata.jsonl", ROWS[:1])
    prepare("image-text", tmp_path / "set", "-o", tmp_path / "c", "--workers", 1, "--own-split", "test")
    assert [s["image"] for s in stored(tmp_path / "c")] == [photograph(0), photograph(2)]
    assert [s["image"] for s in stored(tmp_path / "c-test")] == [photograph(1)]
    dropped = json.loads((tmp_path / "c" / "corpus.json").read_bytes())["shards"][0]["dropped"]
    assert dropped == {"ImageFolder: image not found": 1, "ImageFolder: no row names the image": 1}


def test_a_folder_is_a_class(tmp_path: Path, stored: Any) -> None:
    images(tmp_path / "animals", "train/dog/1.png", "train/cat/1.png", "val/dog/1.png", ".cache/x.png")
    (tmp_path / "animals" / "README.md").write_text("animals")
    assert detect("image-text", [tmp_path / "animals"]) == "image-folder"
    prepare("image-text", tmp_path / "animals", "-o", tmp_path / "c", "--workers", 1, "--own-split", "val")
    assert [(s["labels"], s["image"]) for s in stored(tmp_path / "c")] == [
        ({"label": "cat"}, photograph(1)),
        ({"label": "dog"}, photograph(0)),
    ]
    assert [s["labels"] for s in stored(tmp_path / "c-val")] == [{"label": "dog"}]


def test_images_without_a_word_are_no_classes(tmp_path: Path) -> None:
    images(tmp_path / "photos", "1.png", "2.png")
    with pytest.raises(WorkbenchError, match="cannot detect the image-text format"):
        detect("image-text", [tmp_path / "photos"])
