"""The image part `vision.pixels`."""

from __future__ import annotations

from tests.contracts.cases import ImageProcessorCase

CASE = ImageProcessorCase({"size": 8, "grid": 2, "crop_scale": 0.5})
