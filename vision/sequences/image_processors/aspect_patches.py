"""An image with its own aspect ratio, cut into patches (ViLT, arXiv:2102.03334, section 4.1)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from vision.images.boxes import WHOLE, cell_boxes
from vision.images.decoding import EncodedImage, sample_encoded
from vision.images.transforms import ENOUGH, resized, speaks_of_sides, without_ends
from vision.sequences.image_processors.patches import cut
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Share, Side
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class AspectPatchesProcessor(ImageProcessor):
    """Patches of an image that keeps its aspect ratio (ViLT, arXiv:2102.03334, section 4.1). The shorter side becomes
    `shorter`, or less if the longer side would exceed `longer`. Both sides are cut to whole patches. The patches are
    listed row by row, without padding.

    Its embedding is `vision.patches` with `interpolate`, whose positions fit any grid.

    Args:
        shorter, longer: sides in pixels (ViLT: 384 and 640).
        patch: side of a patch in pixels.
        most: most patches in training, drawn at random (ViLT: 200); null keeps all.
        flip: probability of mirroring, unless the text mentions left or right.
        class_row: a row of zeros in front whose box is the whole image, for the class token.
    """

    def __init__(
        self,
        shorter: Side,
        longer: Side,
        patch: Side,
        *,
        most: Count | None = None,
        flip: Share = 0.0,
        class_row: bool = False,
    ) -> None:
        if not patch <= shorter <= longer:
            raise WorkbenchError(
                f"patch = {patch}, shorter = {shorter}, longer = {longer}; each must be at most the next one"
            )
        self.shorter, self.longer, self.patch, self.most = shorter, longer, patch, most
        self.flip, self.class_row = flip, class_row
        self.shape = {"patch": patch}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        pixels = self.resized(sample_encoded(sample))
        if rng is not None and self.flip and rng.random() < self.flip and not speaks_of_sides(sample):
            pixels = pixels.flip(-1)
        patches = cut(pixels, self.patch).numpy()
        boxes = cell_boxes(pixels.shape[1] // self.patch, pixels.shape[2] // self.patch)
        if rng is not None and self.most is not None and len(patches) > self.most:
            kept = np.sort(rng.choice(len(patches), self.most, replace=False))
            patches, boxes = patches[kept], boxes[kept]
        special = np.zeros(len(patches), np.bool_)
        if not self.class_row:
            return {"patches": patches, "boxes": boxes, "special": special}
        return {
            "patches": np.concatenate([np.zeros_like(patches[:1]), patches]),
            "boxes": np.concatenate([np.asarray([WHOLE], np.float32), boxes]),
            "special": np.concatenate([[True], special]),
        }

    def resized(self, image: EncodedImage) -> Tensor:
        """uint8 [3, height, width], each a multiple of the patch's side."""
        pixels = without_ends(image.pixels(min(image.size) // (ENOUGH * self.shorter)))
        sides = pixels.shape[1:]
        scale = min(self.shorter / min(sides), self.longer / max(sides))
        return resized(pixels, *(max(1, round(side * scale) // self.patch) * self.patch for side in sides))
