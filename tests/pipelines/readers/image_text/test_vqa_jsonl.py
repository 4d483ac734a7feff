"""The image-text format `vqa-jsonl`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, json_lines


def row(i: int) -> dict[str, Any]:
    return {"question_id": i, "image": f"{i}.png", "question": "What?", "answers": ["cat"]}


CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=json_lines(row),
    alongside=images,
)


def vizwiz(i: int) -> dict[str, Any]:
    """As https://vizwiz.org publishes them: no id, ten answers with how sure each is."""
    said = [{"answer_confidence": "yes", "answer": "basil"}] * 9 + [{"answer_confidence": "no", "answer": ""}]
    return {
        "image": f"VizWiz_train_0000000{i}.jpg",
        "question": "What's the name of this product?",
        "answers": said,
        "answer_type": "other",
        "answerable": 1,
    }


def test_vizwiz_has_no_ids(json_lines, tar, photograph, read, caplog):
    tar("images.tar", {f"VizWiz_train_0000000{i}.jpg": photograph(i) for i in range(2)})
    test = {name: value for name, value in vizwiz(1).items() if name in ("image", "question")}
    first, second = read("image-text", json_lines("train.json", [vizwiz(0), test]))
    (asked,) = first["questions"]
    assert asked["question_id"] == "VizWiz_train_00000000-1"
    assert asked["answers"] == ["basil"] * 9 + [""]
    assert (asked["answer_type"], asked["answerable"]) == ("other", 1)
    assert second["questions"][0]["answers"] == []
    assert "2 questions have no question_id and are named by image and row; 1 have no answers" in caplog.text


def test_the_lists_of_albef_and_blip(json_lines, tar, photograph, read):
    """`answer` is a list of what all annotators said; in BLIP's lists of test sets it is lacking."""
    tar("images.tar", {"val2014/a.jpg": photograph(0)})
    row = {"question_id": 262148000, "question": "Where?", "image": "val2014/a.jpg", "dataset": "vqa"}
    path = json_lines("vqa_val.json", [{**row, "answer": ["net", "net", "netting"]}, {**row, "question_id": 2}])
    (sample,) = read("image-text", path)
    assert [q["answers"] for q in sample["questions"]] == [["net", "net", "netting"], []]
    assert "answer" not in sample["questions"][0]
