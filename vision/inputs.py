"""How a sample's image becomes the rows of the `image` stream. These run in the loader's workers.

    Patches   the image cut into squares (ViT, ViLT, CLIP)          patches [n, 3 * patch * patch], boxes [n, 4]
    Pixels    the whole image for a backbone inside the model       pixels [1, 3, size, size] uint8, boxes [grid^2, 4]
    Regions   stored features (UNITER, LXMERT, ViLBERT)             features [n, d], boxes [n, 4]

Each is called `image(sample, rng)`; `rng` None means no augmentation.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from vision.boxes import WHOLE, check_boxes, grid_boxes
from vision.images import place, sample_image
from vision.transforms import Normalisation, Resize, Square, normalise, speaks_of_sides
from workbench.bounds import Cells, Count, Name, Share, Side, SomeShare
from workbench.errors import BadValueError, WorkbenchError
from workbench.sequences import Fields, Sample
from workbench.text.protocols import Image


class Patches(Image):
    """Non-overlapping square patches, row by row, each flattened as (channel, y, x).

    `class_row` puts a row of zeros in front whose box is the whole image: the embedding gives it a learned vector of
    its own (ViT's class token) and no objective corrupts it.
    """

    def __init__(
        self,
        size: Side,
        patch: Side,
        *,
        resize: Resize = "squash",
        crop_scale: SomeShare = 1.0,
        flip: Share = 0.0,
        normalisation: Normalisation = "half",
        class_row: bool = False,
    ) -> None:
        if size % patch:
            raise WorkbenchError(f"size = {size} is not a multiple of patch = {patch}; choose sizes that divide")
        self.square = Square(size, resize=resize, crop_scale=crop_scale, flip=flip)
        self.patch = patch
        self.normalisation = normalisation
        self.class_row = class_row
        self.boxes = grid_boxes(size // patch)
        self.shape = {"patch": patch, "grid": size // patch}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        pixels = _pixels(sample, self.square, rng)
        patches = cut(normalise(pixels, self.normalisation), self.patch).numpy()
        special = np.zeros(len(patches), np.bool_)
        if not self.class_row:
            return {"patches": patches, "boxes": self.boxes.copy(), "special": special}
        return {
            "patches": np.concatenate([np.zeros_like(patches[:1]), patches]),
            "boxes": np.concatenate([np.asarray([WHOLE], np.float32), self.boxes]),
            "special": np.concatenate([[True], special]),
        }


class Pixels(Image):
    """The image itself, for a backbone in the model that gives grid x grid rows and normalises by itself."""

    def __init__(
        self, size: Side, grid: Cells, *, resize: Resize = "squash", crop_scale: SomeShare = 1.0, flip: Share = 0.0
    ) -> None:
        self.square = Square(size, resize=resize, crop_scale=crop_scale, flip=flip)
        self.boxes = grid_boxes(grid)
        self.shape = {"size": size, "grid": grid}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        pixels = _pixels(sample, self.square, rng)
        return {"pixels": pixels[None].numpy(), "boxes": self.boxes.copy()}


class Regions(Image):
    """Stored features of the sample, the most confident `max_regions` of them.

    A model that was trained on the features of one backbone is useless on those of another and nothing else would
    tell, so `backbone` is compared with what the corpus recorded (`meta.backbone`).
    """

    def __init__(self, backbone: Name, max_regions: Count = 100) -> None:
        self.backbone = backbone
        self.max_regions = max_regions

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        where = place(sample)
        if "regions" not in sample:
            raise WorkbenchError(
                f"{where}: the sample has no region features; run `workbench prepare regions` on the corpus, or let "
                "the recipe read the image itself (vision.inputs:Patches or vision.inputs:Pixels)"
            )
        found = sample.get("meta", {}).get("backbone")
        if found != self.backbone:
            raise WorkbenchError(
                f"{where}: the features are of backbone {found!r}, this model reads those of {self.backbone!r}. "
                "Extract the corpus again with that backbone, or train a model on this one"
            )
        return self._fields(sample["regions"], where)

    def _fields(self, regions: Fields, where: str) -> Fields:
        try:
            check_boxes(regions)
        except ValueError as error:
            raise BadValueError(where, str(error), regions, "unusable region boxes") from error
        keep: slice | np.ndarray = slice(self.max_regions)
        if "confidence" in regions and len(regions["confidence"]) > self.max_regions:
            keep = np.sort(np.argsort(-regions["confidence"], kind="stable")[: self.max_regions])
        return {
            "features": np.array(regions["features"][keep], np.float32),
            "boxes": np.array(regions["boxes"][keep], np.float32),
        }


def cut(pixels: Tensor, patch: int) -> Tensor:
    """Pixels [channels, height, width] -> [(height / patch) * (width / patch), channels * patch * patch]."""
    channels, height, width = pixels.shape
    blocks = pixels.reshape(channels, height // patch, patch, width // patch, patch)
    return blocks.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch * patch)


def _pixels(sample: Sample, square: Square, rng: np.random.Generator | None) -> Tensor:
    image = sample_image(sample, at_least=2 * square.size)
    return square(image, rng, mirror=not (square.flip and speaks_of_sides(sample)))
