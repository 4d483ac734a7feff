"""The image part `vision.patches`."""

from __future__ import annotations

from tests.contracts.cases import ImageProcessorCase

CASES = {
    "": ImageProcessorCase({"size": 8, "patch": 4, "crop_scale": 0.5, "flip": 0.5, "class_row": True}),
    "plain": ImageProcessorCase({"size": 8, "patch": 4}, {"seed": "no augmentation is asked for"}),
}
