"""Images from any source: raster formats only, of a bounded size, with eight bits a channel.

Pillow also opens formats that are programs (EPS is run by Ghostscript). So all bytes from outside are opened here, with
a list of allowed formats. The size in the header is checked before anything is decoded.
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
"""Formats that some builds of Pillow read, and Pillow's names of their decoders."""
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
"""The errors of Pillow's decoders on damaged data, and `UnidentifiedImageError`, an OSError, on data that is no
image."""


ON_ITS_SIDE = (5, 6, 7, 8)
"""EXIF orientations that exchange width and height."""


class TooManyPixelsError(ValueError):
    """An image whose header states too many pixels."""


class UnscaledPixelsError(ValueError):
    """Pixels without a known black and white."""


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
"""The first bytes of files of each format, by their specifications. An ICO's counts of images are not zero."""
_BEFORE_SVG = {b"<?": b"?>", b"<!--": b"-->", b"<!doctype svg": b">"}
"""Constructs that may precede an SVG element: their beginnings and ends."""


def image_format(data: bytes) -> str | None:
    """The format of an image by its first bytes, whether it can be read here or not; None if it is no image."""
    found = next((name for name, signature in _SIGNATURES.items() if signature.match(data[:128])), None)
    return found or ("SVG" if _is_svg(data[:4096]) else None)


def _is_svg(head: bytes) -> bool:
    """Whether an SVG element follows the XML declaration, comments and a document type."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for _ in range(64):
        end = next((end for begin, end in _BEFORE_SVG.items() if head.startswith(begin)), None)
        if end is None:
            break
        head = head.partition(end)[2].lstrip()
    return re.match(rb"<(svg:)?svg\b", head) is not None


def unsupported_format(data: bytes) -> str | None:
    """The format of an image that cannot be read here; None for all other bytes."""
    found = image_format(data)
    return None if found is None or found.upper().replace(" ", "") in FORMATS else found


def open_image(data: bytes, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """An image from encoded bytes; its pixels are decoded on access.

    Args:
        pixel_limit: width x height above which the image is refused.

    Raises:
        TooManyPixelsError: it is larger.
        Exception: one of `FAILURES`, here or on decoding: it is damaged, or in none of `FORMATS`.
    """
    with _quiet():  # also about large images: Pillow has another limit
        image: Image.Image = Image.open(io.BytesIO(_without_vast_texts(data)), formats=FORMATS)
    width, height = image.size
    if width * height > pixel_limit:
        raise TooManyPixelsError(
            f"the image is {width} x {height} = {width * height:,} pixels; the limit is {pixel_limit:,}"
        )
    return image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the image as displayed, rotated by its EXIF orientation; no pixels are decoded."""
    return (image.height, image.width) if orientation(image) in ON_ITS_SIDE else image.size


def orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 if there is none."""
    with _quiet():
        value: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    return value


def upright(image: Image.Image) -> Image.Image:
    """The image rotated by its EXIF orientation, with eight bits a channel: 16-bit grey is scaled.

    Pillow's own conversion clips 16-bit grey, which turns most of it white. Pillow scales 16-bit colours on opening.

    Raises:
        UnscaledPixelsError: floating-point or 32-bit pixels, whose white level is unknown.
    """
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):  # other formats' I is 0..65535
        found = "floating-point" if image.mode == "F" else "32-bit"
        raise UnscaledPixelsError(f"{found} pixels; convert them to 8 or 16 bits, whose white level is known")
    image.load()
    with _quiet():
        ImageOps.exif_transpose(image, in_place=True)  # does not copy an upright image
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image, np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return image


def _quiet() -> warnings.catch_warnings[None]:
    """A block without Pillow's warnings: damaged EXIF is ignored."""
    return warnings.catch_warnings(action="ignore")


def _without_vast_texts(data: bytes) -> bytes:
    """A PNG without the texts and the colour profile that are larger than Pillow's limit; Pillow would refuse the
    image.

    They don't affect the pixels. Compressed data is unpacked up to Pillow's limit only.
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
    """(name, begin, end) of a PNG's chunks, including their lengths and checksums; a truncated chunk is left out."""
    at = len(_PNG)
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            return
        yield name, at, at + 12 + length
        at += 12 + length


def _unpacked(chunk: bytes, name: bytes) -> int:
    """The unpacked size of a chunk's text or profile, at most Pillow's limit; 0 if it is damaged."""
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
