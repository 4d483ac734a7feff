"""The image-text format `karpathy`."""

from __future__ import annotations

import json

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus


def text(records: int) -> str:
    def image(i: int) -> dict[str, object]:
        raw = {"tokens": ["a", "dog"], "raw": "A dog.", "imgid": i, "sentid": i}
        split = ("train", "restval", "val", "test")[i % 4]
        return {"filepath": "val2014", "sentids": [i], "filename": f"{i}.png", "split": split, "sentences": [raw]}

    return json.dumps({"images": [image(i) for i in range(records)], "dataset": "coco"}, indent=1)


CASE = ReaderCase(
    excused={"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=text,
    file="dataset_coco.json",
    alongside=images,
)


def test_sentences_and_splits(tmp_path, photograph, read):
    (tmp_path / "dataset_flickr8k.json").write_text(text(4))
    (tmp_path / "photos" / "val2014").mkdir(parents=True)
    for i in range(4):
        (tmp_path / "photos" / "val2014" / f"{i}.png").write_bytes(photograph(i, format="PNG"))
    options = {"images": [str(tmp_path / "photos")]}
    found = read("image-text", tmp_path / "dataset_flickr8k.json", **options)
    assert [s["key"] for s in found] == ["0", "1", "2", "3"]
    assert found[3]["captions"] == ["A dog."]
    assert [s["meta"]["split"] for s in found] == ["train", "restval", "val", "test"]
    assert found[2]["image"] == photograph(2, format="PNG")
    out = tmp_path / "corpus"
    command = ["-o", out, "--images", tmp_path / "photos", "--own-split", "val", "--own-split", "test", "--workers", 1]
    prepare("image-text", tmp_path / "dataset_flickr8k.json", *command)
    records = {part: Corpus.open(f"{out}{part}").records for part in ("", "-val", "-test")}
    assert records == {"": 2, "-val": 1, "-test": 1}, "restval is trained on"
    (only,) = read("image-text", tmp_path / "dataset_flickr8k.json", splits=["test"], **options)
    assert only["key"] == "3"
    with pytest.raises(WorkbenchError, match=r"unknown split 'tset'.*test"):
        read("image-text", tmp_path / "dataset_flickr8k.json", splits=["tset"], **options)
