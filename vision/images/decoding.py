"""Decoding images from untrusted bytes: a pixel limit, clear errors, upright RGB.

The bytes come from the web, through corpora. Pillow reads the header, through `workbench.core.images`, and the header
decides the decoder. torchvision decodes an ordinary JPEG at its full size, in a third of Pillow's time. Pillow decodes
a JPEG that is larger than needed at a fraction of its size, and every other image (docs/results/data.md has the times).
Both use libjpeg-turbo and return the same pixels. Every failure names the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

from workbench.core.errors import BadValueError
from workbench.core.images import (
    FAILURES,
    FORMATS,
    ON_ITS_SIDE,
    PIXEL_LIMIT,
    TooManyPixelsError,
    UnscaledPixelsError,
    image_format,
    open_image,
    orientation,
    unsupported_format,
    upright,
)
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample

FRACTIONS = (8, 4, 2, 1)
"""Divisors of the sides at which a JPEG can be decoded."""


class EncodedImage:
    """An image whose header was read; its pixels are decoded on demand.

    Attributes:
        size: width and height, upright.

    Raises:
        BadValueError: see `decode`.
    """

    def __init__(self, data: bytes, where: str, *, pixel_limit: int = PIXEL_LIMIT) -> None:
        self.data, self.where, self.pixel_limit = data, where, pixel_limit
        with _explained(data, where):
            image = open_image(data, pixel_limit)
            self._jpeg = image.format in ("JPEG", "MPO")
            turn = orientation(image) if self._jpeg else 1
            self._decoded = None if self._jpeg else _rgb(upright(image))
        self._plain = image.format == "JPEG" and image.mode in ("L", "RGB") and turn == 1
        width, height = (self._decoded or image).size
        self.size = (height, width) if turn in ON_ITS_SIDE else (width, height)

    def pixels(self, shrink: int = 1) -> Tensor:
        """uint8 [3, height, width]. `shrink`: see `image`.

        Raises:
            BadValueError: as of `decode`.
        """
        if self._plain and shrink < 2:
            try:
                return decode_jpeg(torch.frombuffer(bytearray(self.data), dtype=torch.uint8), ImageReadMode.RGB)
            except RuntimeError:  # damaged: Pillow reports how, or can read it nevertheless
                pass
        return pil_to_tensor(self.image(shrink))

    def image(self, shrink: int = 1) -> Image.Image:
        """Upright RGB. `shrink`: a JPEG's sides may be that many times smaller, or less.

        Raises:
            BadValueError: as of `decode`.
        """
        if self._decoded is not None:
            return self._decoded
        with _explained(self.data, self.where):
            image = open_image(self.data, self.pixel_limit)
            fraction = next(one for one in FRACTIONS if one <= max(shrink, 1))
            image.draft("RGB", (max(image.width // fraction, 1), max(image.height // fraction, 1)))
            return _rgb(upright(image))


def decode(data: bytes, where: str, *, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """An upright RGB image from encoded bytes.

    Args:
        where: name of the image in an error (corpus and key).
        pixel_limit: width x height above which the image is refused, before decoding.

    Raises:
        BadValueError: not an image, a web page saved as one, truncated, above the pixel limit, or pixels without a
        defined
            scale.
    """
    return EncodedImage(data, where, pixel_limit=pixel_limit).image()


def sample_encoded(sample: Sample) -> EncodedImage:
    """The image of a sample, not decoded yet.

    Raises:
        BadValueError: the sample has no image, or one that cannot be decoded.
    """
    where = place(sample)
    if "image" not in sample:
        raise missing(sample, "image")
    return EncodedImage(sample["image"], where)


def sample_image(sample: Sample) -> Image.Image:
    """The decoded image of a sample.

    Raises:
        BadValueError: as of `sample_encoded`.
    """
    return sample_encoded(sample).image()


def place(sample: Sample) -> str:
    """The name of a sample in an error: its corpus and key, and the name of its medium (`ImageStream`)."""
    medium = f", medium {sample['medium']!r}" if "medium" in sample else ""
    return f"corpus {sample.get('corpus', '?')!r}, key {sample.get('key', '?')!r}{medium}"


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image)
    return image if image.mode == "RGB" else image.convert("RGB")


@contextmanager
def _explained(data: bytes, where: str) -> Iterator[None]:
    """The error of Pillow as one that names the record."""
    try:
        yield
    except TooManyPixelsError as error:
        detail = f"{error}. Shrink it before preparing the corpus"
        raise BadValueError(where, detail, data, "image too large") from error
    except UnscaledPixelsError as error:
        raise BadValueError(where, f"the image has {error}", data, "unscaled pixels") from error
    except FAILURES as error:
        raise BadValueError(where, _reason(data, error), data, "undecodable image") from error


def _reason(data: bytes, error: Exception) -> str:
    start = data[:64].lstrip()
    if not data:
        return "the image is empty (0 bytes)"
    unread = unsupported_format(data)
    if unread:
        return f"{unread}, an unsupported format (allowed: {', '.join(FORMATS)}); convert or remove the record"
    if start[:1] == b"<":
        return f"not an image but a text page saved as one (it begins with {start[:20]!r}); remove the record"
    if isinstance(error, Image.UnidentifiedImageError):
        kind = image_format(data)
        if kind is None:
            return f"not an image in {', '.join(FORMATS)} (it begins with {data[:8]!r}); remove or convert the record"
        return f"the image is damaged (it begins as {kind}, but the rest does not fit); remove the record"
    return f"the image is damaged ({error}); remove the record"
