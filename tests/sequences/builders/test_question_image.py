"""The builder `question_image`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

IMAGE = {"image_processor": "vision.patches", "size": 8, "patch": 4, "flip": 0.5, "crop_scale": 0.5}
CASE = BuilderCase({"image_processor": IMAGE}, excused={"small": "questions make its sequences"})
