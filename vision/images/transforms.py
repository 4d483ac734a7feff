"""From an image to a square of pixels: torchvision's resizing of bytes, and augmentation keyed by a generator."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import InterpolationMode, center_crop, pil_to_tensor, resize

from vision.images.decoding import EncodedImage, sample_encoded
from workbench.sequences.sequence import Sample

Resize = Literal["squash", "crop"]
Normalisation = Literal["imagenet", "clip", "half"]
LONGEST = 4
"""Largest ratio of the sides; longer images are cropped to it, ordinary photographs stay whole."""
ENOUGH = 2
"""Least size of a decoded fraction, in sides of the square; a fraction decoded so differs no more than another filter
does (docs/results/data.md)."""
RATIOS = (3 / 4, 4 / 3)
SIDES = re.compile(r"\b(left|right)(most|hand)?\b", re.IGNORECASE)

# mean and standard deviation of each channel of pixels in 0..1
NORMALISATIONS: dict[Normalisation, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


def standardise(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 pixels [..., 3, height, width] -> (pixels / 255 - mean) / std per channel, float32."""
    numbers = pixels.to(torch.float32, copy=True)  # changed in place, to avoid two more copies of a batch
    return numbers.div_(255).sub_(mean[:, None, None]).div_(std[:, None, None])


class Region(NamedTuple):
    """A crop of an image, in its pixels."""

    left: int
    top: int
    width: int
    height: int


class SquareCrop:
    """A square of uint8 pixels [3, size, size] from an image.

    Without a generator, or with `crop_scale` 1 and `flip` 0, it is deterministic: the image squashed to the square
    (nothing is lost), or its centre. With one: a random crop of at least `crop_scale` of the area, mirrored with
    probability `flip`; an image whose text mentions left or right is never mirrored.

    The centre is cropped as torchvision, open_clip and CLIP's authors do: half of what is left over is rounded to even.
    transformers rounds down, so its crop is one pixel apart where (resized side - size) mod 4 = 3.

    The crop is chosen first and decoded then, at a fraction of its size if that leaves it `ENOUGH` times as large as
    the square.
    """

    def __init__(self, size: int, *, resize: Resize = "squash", crop_scale: float = 1.0, flip: float = 0.0) -> None:
        self.size = size
        self.crop_scale = crop_scale
        self.flip = flip
        self.centred = resize == "crop"

    def __call__(
        self, image: EncodedImage | Image.Image, rng: np.random.Generator | None, mirror: bool = True
    ) -> Tensor:
        """`mirror`: whether this image may be mirrored at all."""
        if rng is None:
            return self._fixed(image)
        pixels = self._crop(image, rng) if self.crop_scale < 1 else self._fixed(image)
        if self.flip and rng.random() < self.flip and mirror:
            pixels = pixels.flip(-1)
        return pixels

    def in_image(self, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
        """Boxes [n, 4] in 0..1 of the deterministic square as boxes in 0..1 of its image."""
        if not self.centred:
            return boxes
        sides = np.asarray([width, height, width, height], np.float32)
        return 0.5 + (boxes - 0.5) * (min(width, height) / sides)

    def _fixed(self, image: EncodedImage | Image.Image) -> Tensor:
        pixels = decoded_image(image, self._shrink(image.size))
        if not self.centred:
            return resized(pixels, self.size, self.size)
        pixels = without_ends(pixels)
        height, width = pixels.shape[1:]
        shorter = min(height, width)
        whole = resized(pixels, *(int(self.size * side / shorter) for side in (height, width)))
        return center_crop(whole, [self.size, self.size])

    def _crop(self, image: EncodedImage | Image.Image, rng: np.random.Generator) -> Tensor:
        region = random_region(*image.size, self.crop_scale, rng)
        pixels = decoded_image(image, self._shrink(region[2:]))
        height, width = pixels.shape[1:]
        rows = _scaled(region.top, region.height, height / image.size[1])
        columns = _scaled(region.left, region.width, width / image.size[0])
        return resized(pixels[:, rows, columns], self.size, self.size)

    def _shrink(self, sides: tuple[int, ...]) -> int:
        return min(sides) // (ENOUGH * self.size)


def decoded_image(image: EncodedImage | Image.Image, shrink: int) -> Tensor:
    """uint8 [3, height, width] of an image, which may be `shrink` times smaller if it is not decoded yet."""
    return image.pixels(shrink) if isinstance(image, EncodedImage) else pil_to_tensor(image)


def resized(pixels: Tensor, height: int, width: int) -> Tensor:
    """uint8 [channels, any, any] -> [channels, height, width], bicubic, antialiased."""
    found: Tensor = resize(pixels, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
    return found


def random_region(width: int, height: int, least: float, rng: np.random.Generator) -> Region:
    """A random crop of at least the share `least` of an image's area, with an aspect ratio between 3/4 and 4/3.

    As torchvision's RandomResizedCrop: uniform area, uniform log of the ratio, up to ten draws; if none fits, the
    centre, as large as the ratios allow.
    """
    narrow, wide = (math.log(ratio) for ratio in RATIOS)
    for share, ratio in zip(rng.uniform(least, 1, 10), np.exp(rng.uniform(narrow, wide, 10)), strict=True):
        area = share * width * height
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return Region(int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1)), across, down)
    across = min(width, max(1, round(height * RATIOS[1])))
    down = min(height, max(1, round(width / RATIOS[0])))
    return Region((width - across) // 2, (height - down) // 2, across, down)


def _scaled(first: int, length: int, scale: float) -> slice:
    """Rows of an image in the same image at another scale."""
    return slice(round(first * scale), round((first + length) * scale))


def without_ends(pixels: Tensor) -> Tensor:
    """The centre of an image [channels, height, width] whose longer side is more than `LONGEST` times the shorter one.

    This limits the resized image: 20,000 x 2 pixels, a file of 200 bytes, would be enlarged to 2,240,000 x 224.
    """
    height, width = pixels.shape[1:]
    most = LONGEST * min(height, width)
    if max(height, width) <= most:
        return pixels
    high, wide = min(height, most), min(width, most)
    top, left = (height - high) // 2, (width - wide) // 2
    return pixels[:, top : top + high, left : left + wide]


def speaks_of_sides(sample: Sample) -> bool:
    """Whether a caption or question of the sample mentions left or right, so that its image must not be mirrored."""
    texts = [*sample.get("captions", ()), *(q["question"] for q in sample.get("questions", ()))]
    return any(SIDES.search(text) for text in texts)


def pixels_of(sample: Sample, square: SquareCrop, rng: np.random.Generator | None) -> Tensor:
    """uint8 [3, size, size], augmented with an `rng`; not mirrored if the text mentions left or right."""
    return square(sample_encoded(sample), rng, mirror=not (square.flip and speaks_of_sides(sample)))
