"""The image-text format `coco-captions`."""

from __future__ import annotations

import json

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images


def text(records: int) -> str:
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(records)]
    captions = [{"id": i, "image_id": i, "caption": "one"} for i in range(records)]
    return json.dumps({"info": {}, "images": images, "annotations": captions}, indent=1)


CASE = ReaderCase(
    excused={"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=text,
    file="captions.json",
    alongside=images,
)
