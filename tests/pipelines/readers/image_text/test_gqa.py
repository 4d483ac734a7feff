"""The image-text format `gqa`."""

from __future__ import annotations

import json

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images


def row(image: str, balanced: bool = True) -> dict[str, object]:
    return {
        "semantic": [{"operation": "select", "dependencies": [], "argument": "sky (2486325)"}],
        "question": "Is the sky dark?",
        "imageId": image,
        "isBalanced": balanced,
        "answer": "yes",
        "types": {"detailed": "verifyAttr", "semantic": "attr", "structural": "verify"},
        "fullAnswer": "Yes, the sky is dark.",
    }


def text(records: int) -> str:
    return json.dumps({f"0{i}": row(str(i)) for i in range(records)}, indent=1)


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=text,
    file="val_all_questions.json",
    alongside=images,
)


def test_questions_of_an_image_are_one_record(tmp_path, tar, photograph, read):
    tree = {"01": row("n7"), "02": row("n7", balanced=False), "03": {"question": "What?", "imageId": "n7"}}
    (tmp_path / "questions.json").write_text(json.dumps(tree))
    tar("images.tar", {"images/n7.jpg": photograph(1)})
    (sample,) = read("image-text", tmp_path / "questions.json")
    assert [q["question_id"] for q in sample["questions"]] == ["01", "02", "03"]
    assert sample["questions"][0]["answers"] == ["yes"]
    assert sample["questions"][0]["question_type"] == "verify"
    assert sample["questions"][2] == {"question_id": "03", "question": "What?", "answers": []}
    (balanced,) = read("image-text", tmp_path / "questions.json", balanced=True)
    assert [q["question_id"] for q in balanced["questions"]] == ["01"]
