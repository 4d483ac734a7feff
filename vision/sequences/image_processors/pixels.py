"""The whole image, for a backbone inside the model."""

from __future__ import annotations

import numpy as np

from vision.images.boxes import grid_boxes
from vision.images.transforms import Resize, SquareCrop, pixels_of
from workbench.core.options.bounds import Cells, Share, Side, SomeShare
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class PixelsProcessor(ImageProcessor):
    """The whole image as pixels, for a backbone inside the model. The backbone returns grid x grid rows and normalises
    the pixels."""

    def __init__(
        self, size: Side, grid: Cells, *, resize: Resize = "squash", crop_scale: SomeShare = 1.0, flip: Share = 0.0
    ) -> None:
        self.square = SquareCrop(size, resize=resize, crop_scale=crop_scale, flip=flip)
        self.boxes = grid_boxes(grid)
        self.shape = {"size": size, "grid": grid}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        pixels = pixels_of(sample, self.square, rng)
        return {"pixels": pixels[None].numpy(), "boxes": self.boxes.copy()}
