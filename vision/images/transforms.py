"""From a decoded image to a square of pixels: torchvision's v2 transforms, keyed by a generator."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from workbench.sequences.sequence import Sample

Resize = Literal["squash", "crop"]
Normalisation = Literal["imagenet", "clip", "half"]
LONGEST = (
    4  # sides; where an image's centre is cut from, so that ordinary photographs stay whole until they are resized
)
SIDES = re.compile(r"\b(left|right)(most|hand)?\b", re.IGNORECASE)

# mean and standard deviation of each channel of pixels in 0..1
NORMALISATIONS: dict[Normalisation, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


def standardise(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 pixels [..., 3, height, width] -> (pixels / 255 - mean) / std per channel, float32."""
    return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]


class Square:
    """A square of uint8 pixels [3, size, size] from an image.

    Without a generator, or with `crop_scale` 1 and `flip` 0, it is deterministic: the image squashed to the square
    (nothing of it is lost), or its centre. With one: a random crop of at least `crop_scale` of the area, mirrored
    with probability `flip`; an image whose text speaks of left or right is never mirrored.
    """

    def __init__(self, size: int, *, resize: Resize = "squash", crop_scale: float = 1.0, flip: float = 0.0) -> None:
        self.size = size
        self.crop_scale = crop_scale
        self.flip = flip
        self.centred = resize == "crop"
        bicubic = {"interpolation": InterpolationMode.BICUBIC, "antialias": True}
        whole = [v2.Resize((size, size), **bicubic)]
        centre = [v2.Lambda(without_ends), v2.PILToTensor(), v2.Resize(size, **bicubic), v2.CenterCrop(size)]
        self.fixed = v2.Compose(centre if self.centred else [v2.PILToTensor(), *whole])
        self.cropped = v2.Compose(
            [v2.PILToTensor(), v2.RandomResizedCrop(size, scale=(crop_scale, 1.0), **bicubic)]  # ratio 3/4 to 4/3
        )

    def __call__(self, image: Image.Image, rng: np.random.Generator | None, mirror: bool = True) -> Tensor:
        """`mirror`: whether this image may be mirrored at all."""
        if rng is None:
            return self.fixed(image)
        pixels = self._crop(image, rng) if self.crop_scale < 1 else self.fixed(image)
        if self.flip and rng.random() < self.flip and mirror:
            pixels = pixels.flip(-1)
        return pixels

    def in_image(self, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
        """Boxes [n, 4] in 0..1 of the deterministic square as boxes in 0..1 of the image that it is made from."""
        if not self.centred:
            return boxes
        sides = np.asarray([width, height, width, height], np.float32)
        return 0.5 + (boxes - 0.5) * (min(width, height) / sides)

    def _crop(self, image: Image.Image, rng: np.random.Generator) -> Tensor:
        with torch.random.fork_rng(devices=[]):  # v2 draws from torch's global generator
            torch.manual_seed(int(rng.integers(2**63)))
            return self.cropped(image)


def without_ends(image: Image.Image) -> Image.Image:
    """The middle of an image whose longer side is more than `LONGEST` times the shorter one.

    What its centre is cut from is then never much larger than the square: 20,000 x 2 pixels, a file of 200 bytes, would
    be enlarged to 2,240,000 x 224.
    """
    most = LONGEST * min(image.size)
    if max(image.size) <= most:
        return image
    width, height = (min(side, most) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def speaks_of_sides(sample: Sample) -> bool:
    """Whether a caption or question of the sample says left or right, so that its image must not be mirrored."""
    texts = [*sample.get("captions", ()), *(q["question"] for q in sample.get("questions", ()))]
    return any(SIDES.search(text) for text in texts)
