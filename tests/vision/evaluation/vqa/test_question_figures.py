"""Where the photograph of attention lights an image: at what the model saw, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vision.evaluation.vqa.word_attention import shown
from vision.sequences.image_processors.patches import PatchesProcessor
from vision.sequences.image_processors.pixels import PixelsProcessor
from vision.sequences.image_processors.regions import RegionsProcessor
from workbench.sequences.sequence import Sample

SIZES = [(400, 100), (60, 90), (2000, 6)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resize", ["crop", "squash"])
def test_a_cell_lies_where_its_pixels_are_from(
    encode: Callable[..., bytes], size: tuple[int, int], resize: Any
) -> None:
    """Of an image that is brighter from left to right, each patch is as bright as its stretch of the whole image."""
    width, height = size
    shades = np.linspace(0, 255, width, dtype=np.float32).round().astype(np.uint8)
    image = np.broadcast_to(shades[None, :, None], (height, width, 3))
    part = PatchesProcessor(32, 8, resize=resize, class_row=True)
    fields = part({"key": "a", "image": encode(np.ascontiguousarray(image))}, None)
    cells, boxes = shown(fields, part, size)
    assert cells.tolist() == [False] + [True] * 16, "the class token is no stretch of the image"
    for patch, (x1, y1, x2, y2) in zip(fields["patches"][cells], boxes, strict=True):
        assert 0 <= x1 < x2 <= 1
        assert 0 <= y1 < y2 <= 1
        assert patch.mean() == pytest.approx((x1 + x2) / 2 * 255, abs=2)


def test_pixels_are_placed_as_patches_are() -> None:
    fields = {"boxes": np.asarray([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32)}
    cells, boxes = shown(fields, PixelsProcessor(32, 2, resize="crop"), (400, 100))
    assert cells.all()
    np.testing.assert_allclose(boxes, [[0.375, 0, 0.5, 1], [0.5, 0, 0.625, 1]])


def test_regions_lie_where_they_say(samples: list[Sample]) -> None:
    part = RegionsProcessor("made-up")
    fields = part(samples[0], None)
    cells, boxes = shown(fields, part, (400, 100))
    assert cells.all()
    assert np.array_equal(boxes, fields["boxes"])
