"""Images of other people: raster formats alone, of a bounded size, with eight bits a channel.

Pillow also opens formats that are programs (EPS goes to Ghostscript), so every place that opens bytes from outside does
it here, with the formats named. Nothing is decoded before the size in the header was looked at.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
PIXEL_LIMIT = 64_000_000
FAILURES = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow's decoders raise on data that is damaged, and `UnidentifiedImageError`, an OSError, on no image."""


class TooManyPixelsError(ValueError):
    """An image that is too large, by the size in its header."""


class UnscaledPixelsError(ValueError):
    """Pixels whose numbers say nothing of what is black and what is white."""


def open_image(data: bytes, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """An image from encoded bytes; its pixels are decoded when they are asked for.

    Args:
        pixel_limit: width x height above which the image is refused.

    Raises:
        TooManyPixelsError: it is larger.
        Exception: one of `FAILURES`, here or when it is decoded: it is damaged, or in none of `FORMATS`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # Pillow's limit is another one
        image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
    width, height = image.size
    if width * height > pixel_limit:
        raise TooManyPixelsError(
            f"the image is {width} x {height} = {width * height:,} pixels; the limit is {pixel_limit:,}"
        )
    return image


def upright(image: Image.Image) -> Image.Image:
    """The image itself, turned as its EXIF says, with eight bits a channel: 16-bit grey is scaled.

    Pillow's own conversions clip 16-bit grey, which makes most of it white; 16-bit colours it scales as it opens.

    Raises:
        UnscaledPixelsError: floating-point or 32-bit pixels, for which no file says what is white.
    """
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):  # other formats' I is 0..65535
        found = "floating-point" if image.mode == "F" else "32-bit"
        raise UnscaledPixelsError(f"{found} pixels; convert them to 8 or 16 bits, where white is known")
    image.load()
    ImageOps.exif_transpose(image, in_place=True)  # which copies no image that stands upright
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image, np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return image
