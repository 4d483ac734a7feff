"""An image cut into patches."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from vision.images.boxes import WHOLE, grid_boxes
from vision.images.transforms import Resize, SquareCrop, pixels_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Share, Side, SomeShare
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class PatchesProcessor(ImageProcessor):
    """Square patches of an image without overlap (ViT, arXiv:2010.11929). They are listed row by row, each flattened as
    (channel, y, x).

    They stay bytes until they are on the device, where the embedding normalises them: a quarter of the size of floats.
    `class_row` puts a row of zeros in front whose box is the whole image: the embedding replaces it by a learned vector
    (ViT's class token) and no objective corrupts it.
    """

    def __init__(
        self,
        size: Side,
        patch: Side,
        *,
        resize: Resize = "squash",
        crop_scale: SomeShare = 1.0,
        flip: Share = 0.0,
        class_row: bool = False,
    ) -> None:
        if size % patch:
            raise WorkbenchError(f"size = {size} is not a multiple of patch = {patch}; choose a multiple")
        self.square = SquareCrop(size, resize=resize, crop_scale=crop_scale, flip=flip)
        self.patch = patch
        self.class_row = class_row
        self.boxes = grid_boxes(size // patch)
        self.shape = {"patch": patch, "grid": size // patch}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        patches = cut(pixels_of(sample, self.square, rng), self.patch).numpy()
        special = np.zeros(len(patches), np.bool_)
        if not self.class_row:
            return {"patches": patches, "boxes": self.boxes.copy(), "special": special}
        return {
            "patches": np.concatenate([np.zeros_like(patches[:1]), patches]),
            "boxes": np.concatenate([np.asarray([WHOLE], np.float32), self.boxes]),
            "special": np.concatenate([[True], special]),
        }


def cut(pixels: Tensor, patch: int) -> Tensor:
    """Pixels [channels, height, width] -> [(height / patch) * (width / patch), channels * patch * patch]."""
    channels, height, width = pixels.shape
    blocks = pixels.reshape(channels, height // patch, patch, width // patch, patch)
    return blocks.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch * patch)
