"""Codecs: the members of a shard that hold a field's value, and how the value is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files import arrays

JSON_MEMBER = "json"
IMAGES = ("jpg", "png", "webp")


@dataclass(frozen=True)
class Codec:
    """The storage of a value. This base class stores it under its name in the member `json`, with other fields."""

    where: str = "`json`"

    def write(self, value: Any) -> dict[str, bytes]:
        """The members of a value; none if it goes into `json`."""
        return {}

    def reads(self, member: str) -> bool:
        """Whether this member holds the value or one of its elements."""
        return False

    def read(self, before: Any, member: str, data: bytes) -> Any:
        """The value with this member; `before` is the value from earlier members, or None.

        Raises:
            ValueError: the member is damaged.
        """
        raise NotImplementedError(f"{type(self).__name__} has no members of its own")


@dataclass(frozen=True)
class ImageCodec(Codec):
    """An encoded image, in a member that is named after the format."""

    where: str = "`jpg`, `png` or `webp`"

    def write(self, value: bytes) -> dict[str, bytes]:
        return {image_kind(value): value}

    def reads(self, member: str) -> bool:
        return member in IMAGES

    def read(self, before: Any, member: str, data: bytes) -> bytes:
        return data


@dataclass(frozen=True)
class ArraysCodec(Codec):
    """Arrays in one npz file, read without pickle; each has its stored type."""

    where: str = "`regions.npz`"
    member: str = "regions.npz"
    name: str = "regions"

    def write(self, value: Mapping[str, Any]) -> dict[str, bytes]:
        return {self.member: arrays.pack(value)}

    def reads(self, member: str) -> bool:
        return member == self.member

    def read(self, before: Any, member: str, data: bytes) -> dict[str, Any]:
        return arrays.unpack(data, self.member)


def image_kind(data: bytes) -> str:
    """The member name of an image, one of `IMAGES`, detected from its first bytes."""
    if data.startswith(b"\xff\xd8\xff"):
        return "jpg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    raise WorkbenchError(
        f"the image starts with {bytes(data[:12])!r}: neither JPEG nor PNG nor WebP; convert it, or check whether the "
        "download saved an error page"
    )


_STARTS = {b"fLaC": "flac", b"OggS": "ogg", b"ID3": "mp3", b"\x1aE\xdf\xa3": "webm"}
_INSIDE = ((0, b"RIFF", 8, b"WAVE", "wav"), (0, b"RIFF", 8, b"AVI ", "avi"), (4, b"ftyp", 0, b"", "mp4"))
MEDIA = (*IMAGES, *_STARTS.values(), *(kind for *_, kind in _INSIDE))
"""The formats of media, which are the members' names."""


@dataclass(frozen=True)
class MediaCodec(Codec):
    """Media by name, each in a member NAME.FORMAT: `left.jpg`."""

    where: str = "`NAME.FORMAT` each, FORMAT one of " + ", ".join(MEDIA)

    def write(self, value: Mapping[str, bytes]) -> dict[str, bytes]:
        if not value:
            raise WorkbenchError("media is empty; leave the field out, or add a medium")
        return {f"{name}.{medium_kind(name, data)}": data for name, data in value.items()}

    def reads(self, member: str) -> bool:
        name, dot, kind = member.partition(".")
        return bool(name and dot) and kind in MEDIA

    def read(self, before: Any, member: str, data: bytes) -> dict[str, bytes]:
        return {**(before or {}), member.partition(".")[0]: data}


def medium_kind(name: str, data: bytes) -> str:
    """The format of a medium, one of `MEDIA`, detected from its first bytes."""
    for start, kind in _STARTS.items():
        if data.startswith(start):
            return kind
    for first, start, then, inner, kind in _INSIDE:
        if data.startswith(start, first) and data.startswith(inner, then):
            return kind
    if data[:1] == b"\xff" and data[1:2] in (b"\xfb", b"\xf3", b"\xf2"):  # a frame without ID3
        return "mp3"
    try:
        return image_kind(data)
    except WorkbenchError:
        raise WorkbenchError(
            f"the medium {name!r} starts with {bytes(data[:12])!r}, which is none of {', '.join(MEDIA)}; convert it, "
            "or check whether the download saved an error page"
        ) from None


@dataclass(frozen=True)
class MediumCodec(Codec):
    """One encoded video or sound, in a member that is named after the format."""

    formats: tuple[str, ...] = ()
    name: str = "medium"

    def write(self, value: bytes) -> dict[str, bytes]:
        kind = medium_kind(self.name, value)
        if kind not in self.formats:
            raise WorkbenchError(f"the {self.name} is {kind}; allowed: {', '.join(self.formats)}")
        return {kind: value}

    def reads(self, member: str) -> bool:
        return member in self.formats

    def read(self, before: Any, member: str, data: bytes) -> bytes:
        return data


VIDEOS = ("mp4", "webm", "avi")
SOUNDS = ("wav", "flac", "mp3", "ogg")
IN_JSON = Codec()
AS_MEDIA = MediaCodec()
AS_IMAGE = ImageCodec()
AS_ARRAYS = ArraysCodec()
AS_CLIPS = ArraysCodec("`clips.npz`", "clips.npz", "clips")
AS_FRAMES = ArraysCodec("`frames.npz`", "frames.npz", "frames")
AS_VIDEO = MediumCodec("`mp4`, `webm` or `avi`", VIDEOS, "video")
AS_SOUND = MediumCodec("`wav`, `flac`, `mp3` or `ogg`", SOUNDS, "sound")
