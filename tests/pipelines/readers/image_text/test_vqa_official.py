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
