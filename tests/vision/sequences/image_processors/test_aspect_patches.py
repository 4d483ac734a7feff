"""The image part `vision.aspect_patches`."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.contracts.cases import ImageProcessorCase
from vision.sequences.image_processors.aspect_patches import AspectPatchesProcessor
from workbench.core.errors import WorkbenchError

CASES = {
    "": ImageProcessorCase({"shorter": 8, "longer": 16, "patch": 4, "most": 3, "flip": 0.5, "class_row": True}),
    "plain": ImageProcessorCase({"shorter": 8, "longer": 16, "patch": 4}, {"seed": "no augmentation is asked for"}),
}


def photograph(width: int, height: int) -> dict[str, object]:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).save(buffer, "PNG")
    return {"image": buffer.getvalue(), "key": "x"}


@pytest.mark.parametrize(
    ("width", "height", "cells"),
    [
        (640, 480, (12, 16)),
        (480, 640, (16, 12)),
        (1000, 1000, (12, 12)),
        (2000, 1000, (10, 20)),  # 384 x 768 would exceed 640
        (1333, 800, (12, 20)),  # 639.8 pixels are 640
        (40, 30, (12, 16)),
        (4000, 40, (5, 20)),  # no more than four times as long as wide
    ],
)
def test_an_image_keeps_its_shape(width: int, height: int, cells: tuple[int, int]) -> None:
    fields = AspectPatchesProcessor(384, 640, 32)(photograph(width, height), None)
    rows, columns = (round(1 / size) for size in (fields["boxes"][0, 3], fields["boxes"][0, 2]))
    assert (rows, columns) == cells
    assert len(fields["patches"]) == rows * columns
    assert fields["patches"].shape[1] == 3 * 32 * 32


def test_so_many_patches_are_drawn_in_training_alone() -> None:
    part, sample = AspectPatchesProcessor(64, 128, 8, most=20, class_row=True), photograph(200, 100)
    everything = part(sample, None)
    drawn = part(sample, np.random.default_rng(1))
    assert len(everything["patches"]) == 1 + 8 * 16
    assert len(drawn["patches"]) == 21
    places = [int(np.flatnonzero((everything["boxes"] == box).all(1))[0]) for box in drawn["boxes"]]
    assert places == sorted(set(places))
    assert places[0] == 0
    np.testing.assert_array_equal(drawn["patches"], everything["patches"][places])


def test_sides_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="at most the next one"):
        AspectPatchesProcessor(64, 32, 8)
