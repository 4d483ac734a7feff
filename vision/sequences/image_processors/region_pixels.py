"""An image with the boxes of its stored regions, for a network in the model that pools the boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from vision.images.transforms import SquareCrop, pixels_of
from vision.sequences.image_processors.regions import RegionsProcessor
from workbench.core.options.bounds import Count, Name, Side
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class RegionPixelsProcessor(ImageProcessor):
    """Pixels of an image with the boxes of its detected regions, without stored features (VL-BERT, arXiv:1908.08530).
    The embedding `vision.roi_feature` computes the features. A hidden region is hidden in the pixels, so no other
    region sees it.

    `first` [rows] marks the first row of an image; `pixels` are [1, 3, size, size] of bytes.

    Args:
        backbone: the detector in the corpus; `null` in a recipe: that of the task's corpus.
        size: side of the square that the image is squashed to, in pixels.
        max_regions: the largest number of regions, the most confident ones.
        whole: a row for the image as a whole comes before the regions (`first`) or after them (`last`; VL-BERT): its
        box is
            the image. No objective hides it or predicts it.
    """

    reads = ("regions",)
    of_corpora: ClassVar[Mapping[str, str]] = {"backbone": "backbone"}

    def __init__(
        self, backbone: Name, size: Side, max_regions: Count = 100, whole: Literal["first", "last"] | None = None
    ) -> None:
        self.regions = RegionsProcessor(backbone, max_regions, whole)
        self.square = SquareCrop(size)
        self.shape = {"size": size}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        fields = self.regions(sample, rng)
        first = np.zeros(len(fields["boxes"]), np.bool_)
        first[:1] = True
        pixels = pixels_of(sample, self.square, rng)[None].numpy()
        return {**{name: values for name, values in fields.items() if name != "features"}, "first": first} | (
            {"pixels": pixels} if len(first) else {"pixels": pixels[:0]}
        )
