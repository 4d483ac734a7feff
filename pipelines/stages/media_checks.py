"""Stages that decode every medium once before it is stored, so that training never encounters a damaged one.

Images are decoded whole, and resized on demand. Of a video the beginning is decoded. In records of named media each
image is checked and stored like the one image of other samples.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le
from PIL import Image, UnidentifiedImageError

from pipelines.readers.reader import Drop
from pipelines.stages.truncation import CUT_OFF, LATE, are_late, is_cut_off
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.images import (
    FAILURES,
    TooManyPixelsError,
    UnscaledPixelsError,
    image_format,
    open_image,
    unsupported_format,
    upright,
)
from workbench.core.options.bounds import Count, Side
from workbench.corpora.schema.members import IMAGES, medium_kind
from workbench.sequences.sequence import Sample

STORED = ("JPEG", "PNG")

Quality = Annotated[int, Ge(1), Le(95)]  # of a JPEG; above 95 Pillow only makes files larger


@dataclass(frozen=True)
class CheckImage:
    """Drops files that are no images, are cut off, or are too large or too small; stores JPEG and PNG unchanged.

    An image in an unsupported format (SVG, HEIC, ...) is dropped under the format's name. Other supported formats
    become JPEG (PNG if they have transparency), with eight bits a channel. `resize` scales a longer shorter side down
    to that many pixels (never enlarges, keeps the aspect ratio, applies the EXIF rotation). `meta.sha256` is the
    checksum of the stored bytes; `meta.source_sha256` that of the original if they differ.
    """

    max_pixels: Count = 50_000_000
    min_side: Side = 1
    resize: Side | None = None
    quality: Quality = 92

    def __call__(self, sample: Sample) -> Sample | Drop:
        if "image" not in sample:
            return sample
        data: bytes = sample["image"]
        if not data:
            return Drop("empty image file")
        unread = unsupported_format(data)
        if unread:
            return Drop(f"{unread}, a format that is not read here")
        if data[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
            return Drop("a web page, not an image")
        try:
            stored = self._stored(data)
        except UnidentifiedImageError:
            return Drop("damaged image" if image_format(data) else "not an image")
        except (TooManyPixelsError, Image.DecompressionBombError):
            return Drop("too many pixels")
        except UnscaledPixelsError:
            return Drop("pixels without a scale")
        except FAILURES:
            return Drop("damaged image")
        if isinstance(stored, Drop) or stored is data:
            return stored if isinstance(stored, Drop) else sample
        meta = sample.setdefault("meta", {})
        meta["source_sha256"] = meta.get("sha256") or hashlib.sha256(data).hexdigest()
        meta["sha256"] = hashlib.sha256(stored).hexdigest()
        return sample | {"image": stored}

    def _stored(self, data: bytes) -> bytes | Drop:
        """The bytes to store: `data` itself if nothing has to change."""
        image = open_image(data, self.max_pixels)
        width, height = image.size
        if min(width, height) < self.min_side:
            return Drop("too small")
        shrink = self.resize is not None and min(width, height) > self.resize
        if shrink and self.resize is not None:
            image.draft(None, (2 * self.resize, 2 * self.resize))  # JPEG: decode at a fraction of the size
        image.load()
        if image.format in STORED and not shrink:
            return data
        return self._encoded(image, self.resize if shrink else None)

    def _encoded(self, image: Image.Image, shorter: int | None) -> bytes:
        """The image upright, in RGB(A) of eight bits, resized."""
        image = upright(image)
        transparent = image.has_transparency_data
        mode = "RGBA" if transparent else "RGB"
        image = image if image.mode == mode else image.convert(mode)
        if shorter is not None:
            scale = shorter / min(image.size)
            size = max(shorter, round(image.width * scale)), max(shorter, round(image.height * scale))
            # as good for photographs as bicubic, in less than half the time of Lanczos' (docs/results/data.md)
            image = image.resize(size, Image.Resampling.HAMMING)
        buffer = io.BytesIO()
        image.save(buffer, "PNG" if transparent else "JPEG", quality=self.quality)
        return buffer.getvalue()


@dataclass(frozen=True)
class CheckMedia:
    """Drops a sample with a medium of an unknown format, or an image that `check` would drop.

    Sounds and videos are stored unchanged. They are recognised by their first bytes, and dropped if they are cut off.
    """

    check: CheckImage

    def __call__(self, sample: Sample) -> Sample | Drop:
        if "media" not in sample:
            return sample
        stored = {}
        for name, data in sample["media"].items():
            checked = self._stored(name, data)
            if isinstance(checked, Drop):
                return checked
            stored[name] = checked
        return {**sample, "media": stored}

    def _stored(self, name: str, data: bytes) -> bytes | Drop:
        try:
            if image_format(data) is None and medium_kind(name, data) not in IMAGES:  # AVIF's box looks like a video's
                return Drop(f"a medium: {CUT_OFF.reason}") if is_cut_off(data) else data
        except WorkbenchError:
            pass  # perhaps an image of another format, which is then converted
        result = self.check({"image": data})
        return Drop(f"a medium: {result.reason}") if isinstance(result, Drop) else result["image"]


@dataclass(frozen=True)
class CheckVideo:
    """Drops files that are no videos, are cut off, have no decodable frame, or frames with a side below `min_side`; and
    records with captions after the end of the video. With clips alone the end is that of the last one.
    """

    min_side: Side = 1

    def __call__(self, sample: Sample) -> Sample | Drop:
        from vision.video.videos import frames, length

        times = sample.get("caption_times", ())
        if "video" not in sample:
            return LATE if are_late(times, float(sample["clips"]["times"][-1, 1])) else sample
        video, where = sample["video"], f"video {sample['key']!r}"
        try:
            first = next(frames(video, 1.0, where)).image
            if is_cut_off(video):
                return CUT_OFF
            late = are_late(times, length(video, where))
        except BadValueError as error:
            return Drop(error.reason)
        if min(first.size) < self.min_side:
            return Drop("too small")
        return LATE if late else sample
