"""Videos from untrusted bytes, through PyAV: frames at a uniform rate, and folders of frames as a video.

The container format is chosen by the first bytes, so that no playlist and no other file is ever followed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from PIL import Image

from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.images import PIXEL_LIMIT, open_image
from workbench.core.packages import library
from workbench.corpora.schema.members import VIDEOS, image_kind, medium_kind

_DEMUXERS = {"mp4": "mp4", "webm": "matroska", "avi": "avi"}
_CODECS = {"jpg": "mjpeg", "png": "png"}
FRAME_LIMIT_OF_VIDEO = 1_000_000
"""Most frames of one video: ten hours at 25 a second."""


class VideoFrame(NamedTuple):
    """A frame of a video: its time in seconds from the beginning, and its image (RGB)."""

    time: float
    image: Image.Image


def frames(video: bytes, rate: float, where: str) -> Iterator[VideoFrame]:
    """Frames at the times 0, 1 / rate, 2 / rate, ...: the one that is visible at each time.

    Args:
        video: mp4 (also mov), webm (also mkv) or avi.
        rate: frames a second. Frames of a video with a lower rate are repeated.
        where: name of the video in an error.

    Raises:
        BadValueError: not a video, damaged, without images, or of too many pixels.
    """
    av = library("av", "video", "videos")
    try:
        with _opened(av, video, where) as container:
            yield from _even(_shown(container, video, where), rate)
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise _damaged(video, where, error) from error


def length(video: bytes, where: str) -> float | None:
    """Seconds of a video, from its header; None if that has none.

    Raises:
        BadValueError: as `frames`.
    """
    av = library("av", "video", "videos")
    try:
        with _opened(av, video, where) as container:
            return None if container.duration is None else float(container.duration / av.time_base)
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise _damaged(video, where, error) from error


def _opened(av: Any, video: bytes, where: str) -> Any:
    """The container of a video; undecodable bytes in its title and other metadata are ignored.

    From version 19 on PyAV does so by itself, and `open` has no option for it.
    """
    metadata = {"metadata_errors": "ignore"} if int(av.__version__.partition(".")[0]) < 19 else {}
    return av.open(io.BytesIO(video), format=_demuxer(video, where), **metadata)


def _damaged(video: bytes, where: str, error: Exception) -> BadValueError:
    return BadValueError(where, f"the video is damaged ({error}); remove the record", video, "damaged video")


def _demuxer(video: bytes, where: str) -> str:
    try:
        kind = medium_kind("video", video)
    except WorkbenchError as error:
        raise BadValueError(where, str(error), video, "not a video") from error
    if kind not in _DEMUXERS:
        detail = f"it is {kind}; allowed: {', '.join(VIDEOS)}"
        raise BadValueError(where, detail, video, "not a video")
    return _DEMUXERS[kind]


def _shown(container: Any, video: bytes, where: str) -> Iterator[tuple[float, Any]]:
    """The frames of a video, each with its time from the first one on."""
    if not container.streams.video:
        raise BadValueError(where, "it has no images, only sound", video, "no images")
    stream, first = container.streams.video[0], None
    size = stream.codec_context.width * stream.codec_context.height
    if size > PIXEL_LIMIT:
        detail = f"its frames have {size:,} pixels; the limit is {PIXEL_LIMIT:,}"
        raise BadValueError(where, detail, video, "frames too large")
    pace = float(stream.average_rate or 25)
    for number, frame in enumerate(container.decode(stream)):
        if number >= FRAME_LIMIT_OF_VIDEO:
            raise BadValueError(where, f"it has more than {FRAME_LIMIT_OF_VIDEO:,} frames", video, "too many frames")
        time = frame.time if frame.time is not None else number / pace
        first = time if first is None else first
        yield max(0.0, time - first), frame
    if first is None:
        raise BadValueError(where, "none of its frames can be decoded; remove the record", video, "no frame")


def _even(shown: Iterator[tuple[float, Any]], rate: float) -> Iterator[VideoFrame]:
    """Frames at uniform times, from frames with their times; the last one is visible as long as the one before."""
    number, before, last, kept = 0, 0.0, 0.0, None
    for time, frame in shown:
        if kept is not None:
            last = time - before
        while kept is not None and number / rate < time - 1e-6:
            yield VideoFrame(number / rate, kept.to_image())
            number += 1
        kept, before = frame, time
    while kept is not None and number / rate < before + max(last, 1e-3) - 1e-6:
        yield VideoFrame(number / rate, kept.to_image())
        number += 1


def open_video(images: Sequence[bytes], rate: float, where: str) -> bytes:
    """Encoded frames as a video (avi) that holds each of them unchanged: nothing is encoded again.

    Args:
        images: JPEG or PNG, all of one format and size.
        rate: frames a second.
        where: name of the frames in an error.

    Raises:
        BadValueError: no frames, or of several formats or sizes.
    """
    if not images:
        raise BadValueError(where, "it has no frames", images, "no frame")
    kinds = {_format(data, where) for data in images}
    sizes = {_size(data, where) for data in images}
    if len(kinds) > 1 or len(sizes) > 1:
        found = f"{', '.join(sorted(kinds))}; {', '.join(f'{w} x {h}' for w, h in sorted(sizes))}"
        raise BadValueError(where, f"its frames differ ({found}); allowed: one format, one size", None, "frames differ")
    av = library("av", "video", "videos")
    file = io.BytesIO()
    pace = Fraction(rate).limit_denominator(1001)
    with av.open(file, "w", format="avi") as container:
        stream = container.add_stream(_CODECS[kinds.pop()], rate=pace)
        stream.width, stream.height = sizes.pop()
        stream.pix_fmt = "yuvj420p" if stream.codec_context.name == "mjpeg" else "rgb24"
        for number, data in enumerate(images):
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, 1 / pace
            packet.pts = packet.dts = number
            packet.is_keyframe = True
            container.mux(packet)
    return file.getvalue()


def _format(data: bytes, where: str) -> str:
    try:
        kind = image_kind(data)
    except WorkbenchError as error:
        raise BadValueError(where, f"a frame is neither JPEG nor PNG ({error})", data, "not a frame") from error
    if kind not in _CODECS:
        raise BadValueError(where, f"a frame is {kind}; allowed: JPEG and PNG", data, "not a frame")
    return kind


def _size(data: bytes, where: str) -> tuple[int, int]:
    try:
        with open_image(data) as image:
            return image.size
    except (OSError, ValueError, SyntaxError) as error:
        raise BadValueError(where, f"a frame is damaged ({error})", data, "damaged frame") from error
