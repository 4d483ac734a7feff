"""The image-text format `nlvr`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.material import photograph as small
from tests.contracts.raw_inputs import json_lines as rows
from tests.contracts.raw_inputs import tar_of


def row(i: int) -> dict[str, Any]:
    return {"identifier": f"{i}-0", "directory": "5", "sentence": "A box.", "label": "true", "structured_rep": [[]]}


def photographs(records: int) -> dict[str, bytes]:
    return tar_of({f"dev-{i}-0-0.png": small(i % 3) for i in range(records)})


CASE = ReaderCase(
    {"permutations": 1},
    {"streams": "the list of the drawings is held"},
    text=rows(row),
    file="dev.json",
    alongside=photographs,
)


def test_a_record_for_each_drawing(tmp_path, json_lines, photograph, read, drops):
    folder = tmp_path / "images" / "5"
    folder.mkdir(parents=True)
    for order in range(5):
        (folder / f"dev-72-0-{order}.png").write_bytes(photograph(order, format="PNG"))
    path = json_lines("dev.json", [row(72)])
    found = read("image-text", path)
    assert [s["key"] for s in found] == [f"dev-72-0-{order}" for order in range(5)]
    assert {s["meta"]["document"] for s in found} == {"dev-72"}
    assert found[1]["image"] == photograph(1, format="PNG")
    assert found[0]["labels"] == {"label": 1}
    assert found[0]["captions"] == ["A box."]
    assert drops("image-text", path) == ["image not found"]
    assert len(read("image-text", path, permutations=2)) == 2
