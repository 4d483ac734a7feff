"""Decoding images from untrusted bytes: a pixel limit, clear errors, upright RGB.

PIL does the work, through `workbench.images`: the bytes come from the web by way of corpora. Every failure names the
record.
"""

from __future__ import annotations

from PIL import Image

from workbench.errors import BadValueError
from workbench.images import (
    FAILURES,
    FORMATS,
    PIXEL_LIMIT,
    TooManyPixelsError,
    UnscaledPixelsError,
    open_image,
    upright,
)
from workbench.sequences.missing import missing
from workbench.sequences.sequence import Sample


def decode(data: bytes, where: str, *, at_least: int | None = None, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """An upright RGB image from encoded bytes.

    Args:
        where: what to call the image in an error (corpus and key).
        at_least: the shorter side that is needed; a JPEG far larger is decoded at a half, quarter or eighth.
        pixel_limit: width x height above which the image is refused, before decoding.

    Raises:
        BadValueError: not an image, a web page saved as one, truncated, above the pixel limit, or of pixels that could
            mean anything.
    """
    try:
        image = open_image(data, pixel_limit)
        if at_least is not None:
            image.draft("RGB", (at_least, at_least))
        return _rgb(upright(image))
    except TooManyPixelsError as error:
        detail = f"{error}. Shrink it before preparing the corpus"
        raise BadValueError(where, detail, data, "image too large") from error
    except UnscaledPixelsError as error:
        raise BadValueError(where, f"the image has {error}", data, "unscaled pixels") from error
    except FAILURES as error:
        raise BadValueError(where, _reason(data, error), data, "undecodable image") from error


def sample_image(sample: Sample, *, at_least: int | None = None) -> Image.Image:
    """The decoded image of a sample.

    Raises:
        BadValueError: the sample has no image, or one that cannot be decoded.
    """
    where = place(sample)
    if "image" not in sample:
        raise missing(sample, "image")
    return decode(sample["image"], where, at_least=at_least)


def place(sample: Sample) -> str:
    """What to call a sample in an error: its corpus and key, and which of its media it is (`ImageStream`)."""
    medium = f", medium {sample['medium']!r}" if "medium" in sample else ""
    return f"corpus {sample.get('corpus', '?')!r}, key {sample.get('key', '?')!r}{medium}"


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image)
    return image.convert("RGB")


def _reason(data: bytes, error: Exception) -> str:
    start = data[:64].lstrip()
    if not data:
        return "the image is empty (0 bytes)"
    if start[:1] == b"<":
        return f"not an image but a text page saved as one (it begins with {start[:20]!r}); remove the record"
    if isinstance(error, Image.UnidentifiedImageError):
        return f"not an image in {', '.join(FORMATS)} (it begins with {data[:8]!r}); remove or convert the record"
    return f"the image is damaged ({error}); remove the record"
