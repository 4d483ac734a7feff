"""Opening images of other people: raster formats alone, and of a bounded size.

Pillow also opens formats that are programs (EPS goes to Ghostscript), so every place that opens bytes from outside does
it here, with the formats named. Nothing is decoded before the size in the header was looked at.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib

from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
PIXEL_LIMIT = 64_000_000
FAILURES = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow's decoders raise on data that is damaged, and `UnidentifiedImageError`, an OSError, on no image."""


class TooManyPixelsError(ValueError):
    """An image that is too large, by the size in its header."""


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
