"""The image-text format `refcoco`."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.contracts.raw_inputs import json_lines as rows
from workbench.core.errors import WorkbenchError


def row(i: int, split: str = "train", thing: int | None = None) -> dict[str, Any]:
    number = i if thing is None else thing
    return {
        "sent_ids": [0, 1],
        "file_name": f"COCO_train2014_{i}_{number}.jpg",
        "ann_id": 100 + number,
        "ref_id": number,
        "image_id": i,
        "split": split,
        "sentences": [
            {"tokens": ["the", "lady"], "raw": "THE LADY", "sent_id": 0, "sent": "the lady"},
            {"tokens": ["blue", "shirt"], "raw": "Blue shirt.", "sent_id": 1, "sent": "blue shirt"},
        ],
        "category_id": 1,
    }


def instances(records: int, suffix: str = ".png") -> bytes:
    photographs = [{"id": i, "file_name": f"{i}{suffix}", "height": 100, "width": 200} for i in range(records)]
    things = [{"id": 100 + i, "image_id": i, "bbox": [20, 10, 60, 40], "category_id": 1} for i in range(records + 1)]
    return json.dumps({"info": {}, "images": photographs, "annotations": things, "categories": []}).encode()


CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=rows(row),
    file="refs.json",
    alongside=lambda records: {**images(records), "instances.json": instances(records)},
)


@pytest.fixture
def folder(tmp_path, tar, photograph):
    tar("images.tar", {"0.png": photograph(0), "1.png": photograph(1)})
    (tmp_path / "instances.json").write_bytes(instances(2))
    return tmp_path


@pytest.mark.parametrize("named", ["references", "both", "turned", "folder"])
def test_expressions_keep_the_box_of_what_they_mean(folder, read, named):
    (folder / "refs.json").write_text(json.dumps([row(0), row(1, "testA")]))
    both = [folder / "refs.json", folder / "instances.json"]
    inputs = {"references": both[:1], "both": both, "turned": both[::-1], "folder": [folder]}[named]
    first, second = read("image-text", *inputs)
    assert first["captions"] == ["the lady", "blue shirt"]
    assert first["caption_boxes"] == [[0.1, 0.1, 0.4, 0.5]] * 2
    assert [s["meta"]["split"] for s in (first, second)] == ["train", "testA"]


def test_an_image_of_two_splits_is_a_record_in_each(folder, read):
    (folder / "refs.json").write_text(json.dumps([row(0), row(0, "val", thing=2)]))
    found = read("image-text", folder / "refs.json")
    assert [(s["key"], s["meta"]["split"]) for s in found] == [("0-train", "train"), ("0-val", "val")]


def test_what_is_lacking_is_reported(folder, read):
    refs = folder / "refs.json"
    refs.write_text(json.dumps([row(0, thing=77)]))
    with pytest.raises(
        WorkbenchError, match=r"refs\.json:1: an object that instances\.json does not have \(image 0, obj"
    ):
        read("image-text", refs)
    (folder / "instances.json").unlink()
    with pytest.raises(WorkbenchError, match=r"their boxes are in instances\.json: give it with the references; fou"):
        read("image-text", refs)


def test_a_pickle_is_not_opened(folder, read):
    path = folder / "refs(unc).p"
    path.write_bytes(pickle.dumps([row(0)]))
    with pytest.raises(WorkbenchError, match=r"is a pickle, .*convert it to JSON once.*json\.dump\(pickle\.load"):
        read("image-text", path)
    (folder / "refs.json").write_text(json.dumps([row(0)]))
    assert len(read("image-text", folder)) == 1, "what was built from it is read in its place"
    (folder / "cache.pkl").write_bytes(b"")
    assert len(read("image-text", folder)) == 1, "other pickles are nobody's"
