"""Images of other people: raster formats alone, of a bounded size, with eight bits a channel.

Pillow also opens formats that are programs (EPS goes to Ghostscript), so every place that opens bytes from outside does
it here, with the formats named. Nothing is decoded before the size in the header was looked at.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import ExifTags, Image, ImageOps, PngImagePlugin, features

OPTIONAL = {"AVIF": "avif", "JPEG2000": "jpg_2000"}
"""Formats that some builds of Pillow read, and what Pillow calls their decoders."""
FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "PPM",
    *(name for name, decoder in OPTIONAL.items() if features.check(decoder)),
)
PIXEL_LIMIT = 64_000_000
FAILURES = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow's decoders raise on data that is damaged, and `UnidentifiedImageError`, an OSError, on no image."""


ON_ITS_SIDE = (5, 6, 7, 8)
"""EXIF's orientations that exchange width and height."""


class TooManyPixelsError(ValueError):
    """An image that is too large, by the size in its header."""


class UnscaledPixelsError(ValueError):
    """Pixels whose numbers say nothing of what is black and what is white."""


_PNG = b"\x89PNG\r\n\x1a\n"
_BOX = rb"(?s).{4}ftyp"
_SIGNATURES = {
    name: re.compile(signature)
    for name, signature in {
        "AVIF": _BOX + rb"(avif|avis|.{8,64}avif)",
        "HEIC": _BOX + rb"(heic|heix|heim|heis|hevc|hevx|mif1|msf1)",
        "JPEG XL": rb"\xff\x0a|\x00\x00\x00\x0cJXL \r\n\x87\n",
        "JPEG 2000": rb"\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
        "ICO": rb"(?s)\x00\x00[\x01\x02]\x00(?!\x00\x00)..",
        "PSD": rb"8BPS\x00[\x01\x02]",
        "PDF": rb"%PDF-",
        "PostScript": rb"%!PS|\xc5\xd0\xd3\xc6",
        "JPEG": rb"\xff\xd8\xff",
        "PNG": re.escape(_PNG),
        "GIF": rb"GIF8[79]a",
        "WebP": rb"(?s)RIFF.{4}WEBP",
        "TIFF": rb"II\*\x00|MM\x00\*",
    }.items()
}
"""How files of each format begin, by their specifications. An ICO's counts of images are not zero."""
_BEFORE_SVG = {b"<?": b"?>", b"<!--": b"-->", b"<!doctype svg": b">"}
"""What may stand before a drawing: how it begins and ends."""


def image_format(data: bytes) -> str | None:
    """What an image's first bytes say that it is, whether it is read here or not; None of what is none."""
    reported = next((name for name, signature in _SIGNATURES.items() if signature.match(data[:128])), None)
    return reported or ("SVG" if _is_svg(data[:4096]) else None)


def _is_svg(head: bytes) -> bool:
    """Whether a drawing begins behind the XML declaration, comments and a document type."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for _ in range(64):
        end = next((end for begin, end in _BEFORE_SVG.items() if head.startswith(begin)), None)
        if end is None:
            break
        head = head.partition(end)[2].lstrip()
    return re.match(rb"<(svg:)?svg\b", head) is not None


def unsupported_format(data: bytes) -> str | None:
    """The format of an image that is in one that is not read here; None of all other bytes."""
    reported = image_format(data)
    return None if reported is None or reported.upper().replace(" ", "") in FORMATS else reported


def open_image(data: bytes, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """An image from encoded bytes; its pixels are decoded when they are asked for.

    Args:
        pixel_limit: width x height above which the image is refused.

    Raises:
        TooManyPixelsError: it is larger.
        Exception: one of `FAILURES`, here or when it is decoded: it is damaged, or in none of `FORMATS`.
    """
    with _quiet():  # of large images too: Pillow's limit is another one
        image: Image.Image = Image.open(io.BytesIO(_without_vast_texts(data)), formats=FORMATS)
    width, height = image.size
    if width * height > pixel_limit:
        raise TooManyPixelsError(
            f"the image is {width} x {height} = {width * height:,} pixels; the limit is {pixel_limit:,}"
        )
    return image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as the image is shown, turned as its EXIF says; no pixels are decoded."""
    return (image.height, image.width) if orientation(image) in ON_ITS_SIDE else image.size


def orientation(image: Image.Image) -> int:
    """EXIF's, 1 where there is none."""
    with _quiet():
        turned: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    return turned


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
    with _quiet():
        ImageOps.exif_transpose(image, in_place=True)  # which copies no image that stands upright
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image, np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return image


def _quiet() -> warnings.catch_warnings[None]:
    """Damaged EXIF turns nothing and is no news: Pillow's warnings stay away from people's terminals."""
    return warnings.catch_warnings(action="ignore")


def _without_vast_texts(data: bytes) -> bytes:
    """A PNG without the texts and the colour profile that Pillow would refuse to unpack, and the image with them.

    They say nothing of the pixels that are read here. What is compressed is unpacked to Pillow's limit and no further.
    """
    if not data.startswith(_PNG):
        return data
    vast, texts = [], 0
    for name, begin, end in _chunks(data):
        if name in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            size = _unpacked(data[begin + 8 : end - 4], name)
            texts += size * (name != b"iCCP")
            if size >= PngImagePlugin.MAX_TEXT_CHUNK or texts > PngImagePlugin.MAX_TEXT_MEMORY:
                vast.append((begin, end))
    for begin, end in reversed(vast):
        data = data[:begin] + data[end:]
    return data


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(name, begin, end) of a PNG's chunks, their lengths and checksums within; what is cut off is none."""
    at = len(_PNG)
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            return
        yield name, at, at + 12 + length
        at += 12 + length


def _unpacked(chunk: bytes, name: bytes) -> int:
    """How many bytes a chunk's text or profile has unpacked, at most Pillow's limit; 0 of what is damaged."""
    head = chunk.partition(b"\0")[2]
    if name == b"tEXt":
        return len(head)
    if name == b"iTXt":
        compressed, head = head[:1] == b"\1", head[2:].partition(b"\0")[2].partition(b"\0")[2]
        if not compressed:
            return len(head)
    else:
        head = head[1:]
    try:
        return len(zlib.decompressobj().decompress(head, PngImagePlugin.MAX_TEXT_CHUNK))
    except zlib.error:
        return 0
