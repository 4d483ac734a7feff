"""The image-text format `nlvr2`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.material import photograph as small
from tests.contracts.raw_inputs import json_lines as rows
from tests.contracts.raw_inputs import tar_of
from workbench.core.errors import WorkbenchError


def row(i: int, sentence: int = 0) -> dict[str, Any]:
    return {"identifier": f"dev-{i}-2-{sentence}", "sentence": "Both show dogs.", "label": "True", "synset": "dog"}


def photographs(records: int) -> dict[str, bytes]:
    return tar_of({f"dev-{i}-2-img{side}.png": small(i % 3) for i in range(records) for side in (0, 1)})


CASE = ReaderCase(excused={"streams": "the list of the photographs is held"}, text=rows(row), alongside=photographs)


def test_two_images_a_sentence_and_its_truth(tmp_path, json_lines, photograph, read):
    folder = tmp_path / "photos" / "train" / "39"
    folder.mkdir(parents=True)
    for side in (0, 1):
        (folder / f"train-10171-0-img{side}.png").write_bytes(photograph(side))
    true = {"identifier": "train-10171-0-0", "sentence": "An image shows one pen.", "label": "True", "directory": 39}
    false = true | {"identifier": "train-10171-0-1", "label": "False", "left_url": "https://example.org/left.jpg"}
    hidden = {k: v for k, v in true.items() if k != "label"} | {"identifier": "train-10171-0-2"}
    path = json_lines("train.json", [true, false, hidden])
    found = read("image-text", path, images=[str(tmp_path / "photos")])
    assert found[0]["media"] == {"left": photograph(0), "right": photograph(1)}
    assert [s.get("labels") for s in found] == [{"label": 1}, {"label": 0}, None]
    assert {s["meta"]["document"] for s in found} == {"train-10171"}, "a set of photographs is not torn apart"
    assert found[1]["meta"]["left_url"] == "https://example.org/left.jpg"
    with pytest.raises(WorkbenchError, match=r"label is neither true nor false .*'maybe'"):
        read("image-text", json_lines("b.json", [true | {"label": "maybe"}]), images=[str(tmp_path / "photos")])
    with pytest.raises(WorkbenchError, match=r"b\.json:1: identifier is not split-set-pair-sentence"):
        read("image-text", json_lines("b.json", [true | {"identifier": "x"}]), images=[str(tmp_path / "photos")])
