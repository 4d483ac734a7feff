"""The image-text format `vqa-official`."""

from __future__ import annotations

import json

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import images


def text(records: int) -> str:
    questions = [{"image_id": i, "question": "What?", "question_id": 10 * i} for i in range(records)]
    return json.dumps({"data_subtype": "train2014", "task_type": "Open-Ended", "questions": questions}, indent=1)


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=text,
    file="questions.json",
    beside=images,
)


def test_images_of_test_dev_are_those_of_test(tmp_path, tar, picture, read):
    asked = [{"image_id": 7, "question": "What?", "question_id": 70}]
    tree = {"data_subtype": "test-dev2015", "task_type": "Open-Ended", "questions": asked}
    (tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json").write_text(json.dumps(tree))
    tar("images.tar", {"COCO_test2015_000000000007.jpg": picture(1)})
    (sample,) = read("image-text", tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json")
    assert sample["questions"] == [{"question_id": 70, "question": "What?", "answers": []}]
