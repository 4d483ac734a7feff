"""The whole image, for a backbone inside the model."""

from __future__ import annotations

import numpy as np

from vision.images.boxes import grid_boxes
from vision.images.transforms import Resize, SquareCrop, pixels_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Cells, Count, Share, Side, SomeShare
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class PixelsProcessor(ImageProcessor):
    """The whole image as pixels, for a backbone inside the model. The backbone returns grid x grid rows and normalises
    the pixels.

    Args:
        size: side of the image in pixels.
        grid: rows and columns of the backbone's features.
        resize, crop_scale, flip: as of `vision.patches`.
        sample: number of rows that are read in training, drawn anew each time (Pixel-BERT, arXiv:2004.00849, section
            3.3); null: all. Outside of training all are read.

    Raises:
        WorkbenchError: more rows are to be drawn than there are.
    """

    def __init__(
        self,
        size: Side,
        grid: Cells,
        *,
        resize: Resize = "squash",
        crop_scale: SomeShare = 1.0,
        flip: Share = 0.0,
        sample: Count | None = None,
    ) -> None:
        self.square = SquareCrop(size, resize=resize, crop_scale=crop_scale, flip=flip)
        self.boxes = grid_boxes(grid)
        if sample is not None and sample > len(self.boxes):
            raise WorkbenchError(f"sample = {sample}; allowed: up to the {len(self.boxes)} rows of the grid")
        self.sample = sample
        self.shape = {"size": size, "grid": grid}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        pixels = pixels_of(sample, self.square, rng)
        cells = np.arange(len(self.boxes))
        if self.sample is None:
            return {"pixels": pixels[None].numpy(), "boxes": self.boxes.copy()}
        if rng is not None:
            cells = np.sort(rng.choice(cells, self.sample, replace=False))
        return {"pixels": pixels[None].numpy(), "boxes": self.boxes[cells], "cell": cells}
