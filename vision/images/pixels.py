"""The image of a sample as the pixels of a square."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from vision.images.decoding import sample_encoded
from vision.images.transforms import Square, speaks_of_sides
from workbench.sequences.sequence import Sample


def pixels_of(sample: Sample, square: Square, rng: np.random.Generator | None) -> Tensor:
    """uint8 [3, size, size], augmented where there is an `rng`; not mirrored where the text speaks of left or right."""
    return square(sample_encoded(sample), rng, mirror=not (square.flip and speaks_of_sides(sample)))
