"""Detects media that end too early: before their headers say, or before the times of a record.

Interrupted downloads and copies leave such videos and sounds. Only the outermost frames of a file are read, and
nothing is decoded. A file that was written as a stream does not state its length, and counts as complete. Times after
the end are usually milliseconds that were read as seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pipelines.readers.reader import Drop
from workbench.core.errors import WorkbenchError
from workbench.corpora.schema.members import medium_kind

CUT_OFF = Drop("cut off")
UNKNOWN = 0x7FFFF000  # sizes from here on mean "not known yet": sox writes this, ffmpeg 0xFFFFFFFF
_SEGMENT = b"\x18\x53\x80\x67"


def is_cut_off(medium: bytes) -> bool:
    """Whether a video or sound lacks its end; False for other formats."""
    try:
        walk = _WALKS.get(medium_kind("medium", medium))
    except WorkbenchError:
        return False
    return walk is not None and walk(medium)


def _wav(data: bytes) -> bool:
    """RIFF: name, size in 4 bytes, content, padded to an even place; the content of a sound consists of such chunks."""
    at = 12
    while at + 8 <= len(data):
        end, size = _chunk(data, at)
        if data[at : at + 4] == b"data":
            return 0 < size < UNKNOWN and end > len(data)
        at = end + size % 2
    return at > len(data)


def _avi(data: bytes) -> bool:
    """As a RIFF sound; a long video has several chunks in succession."""
    at = end = 0
    while data[at : at + 4] == b"RIFF" and at + 8 <= len(data):
        end, size = _chunk(data, at)
        if not 0 < size < UNKNOWN:
            return False
        at = end + size % 2
    return end > len(data)


def _chunk(data: bytes, at: int) -> tuple[int, int]:
    """The end of a chunk, and the size of its content."""
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    return at + 8 + size, size


def _mp4(data: bytes) -> bool:
    """ISO 14496-12, 4.2: size in 4 bytes, name, content; 1 means a size in the next 8 bytes, 0 the rest of the file."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8 or not data[at + 4 : at + 8].isalnum():
            return False
        at += size
    return at > len(data)


def _webm(data: bytes) -> bool:
    """RFC 8794: the header, then the segment, each with name, size and content."""
    at, size = _varint(data, 4)
    if size is None:
        return False
    at += size
    if data[at : at + 4] != _SEGMENT:
        return False
    begin, size = _varint(data, at + 4)
    return size is not None and begin + size > len(data)


def _varint(data: bytes, at: int) -> tuple[int, int | None]:
    """The place of the content after a size, and the size: None if it is not known."""
    first = data[at] if at < len(data) else 0
    length = 9 - first.bit_length()
    if length > 8:
        return at, None
    ones = (1 << 7 * length) - 1
    size = int.from_bytes(data[at : at + length], "big") & ones
    return at + length, None if size == ones else size


def _ogg(data: bytes) -> bool:
    """RFC 3533, 6: pages of 27 bytes, then as many sizes as the last byte says, then the content."""
    at = 0
    while data[at : at + 4] == b"OggS":
        table = at + 27
        if table > len(data):
            return True
        content = table + data[table - 1]
        at = content + sum(data[table:content])
    return at > len(data)


_WALKS: dict[str, Callable[[bytes], bool]] = {"wav": _wav, "avi": _avi, "mp4": _mp4, "webm": _webm, "ogg": _ogg}


LATE = Drop("times behind the end")
SLACK = 5.0
"""Seconds that a text may last beyond the end if it begins before: recognised speech is shown for longer than it is
heard."""


def are_late(times: Iterable[Sequence[float]], length: float | None) -> bool:
    """Whether one of the intervals [from, to] in seconds begins after the end, or ends long after it.

    Args:
        length: of the sound or video in seconds; None if it is not known.
    """
    return length is not None and any(start > length or end > length + SLACK for start, end in times)
