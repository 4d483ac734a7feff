"""Videos and sounds that lack their end."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.stages.log_mel import LogMel
from pipelines.stages.media_checks import CheckImage, CheckMedia, CheckVideo
from pipelines.stages.truncation import CUT_OFF, is_cut_off
from tests.videos import tone, video

av = pytest.importorskip("av")
soundfile = pytest.importorskip("soundfile")


def encoded(format: str, **options: str) -> bytes:
    """A video of noise, of which no part is empty."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video"
        _encode(str(file), format, options)
        return file.read_bytes()


def _encode(file: str, format: str, options: dict[str, str]) -> None:
    with av.open(file, "w", format=format, options=options) as container:
        stream = container.add_stream({"mp4": "mpeg4", "webm": "libvpx", "avi": "mpeg4"}[format], rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for photograph in np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), np.uint8):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(photograph)))
        container.mux(stream.encode())


def sound(format: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).normal(size=16_000) / 10, 16_000, format=format)
    return file.getvalue()


VIDEOS = {
    "avi": video(frames=200),
    "avi, encoded": encoded("avi"),
    "mp4": encoded("mp4", movflags="faststart"),
    "webm": encoded("webm"),
}
SOUNDS = {"wav": tone(), "flac": sound("FLAC"), "ogg": sound("OGG")}


@pytest.mark.parametrize("name", VIDEOS)
def test_a_video_without_its_end_is_dropped(name: str) -> None:
    data = VIDEOS[name]
    whole = {"key": "a", "video": data}
    assert CheckVideo()(whole) == whole
    for share in (0.6, 0.9):
        assert CheckVideo()({"key": "a", "video": data[: int(len(data) * share)]}) == CUT_OFF
    assert CheckVideo()({"key": "a", "video": data[:-1]}) == CUT_OFF


@pytest.mark.parametrize("name", SOUNDS)
def test_a_sound_without_its_end_is_dropped(name: str) -> None:
    data = SOUNDS[name]
    assert "frames" in LogMel()({"key": "a", "sound": data})
    made: Any = LogMel()({"key": "a", "sound": data[: len(data) // 2]})
    assert made.reason in ("cut off", "damaged sound"), made
    if name != "flac":
        assert made == CUT_OFF


def test_what_was_written_as_a_stream_does_not_say_how_long_it_is() -> None:
    for unknown in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\xf0\xff\x7f"):
        data = tone()
        at = data.index(b"data") + 4
        assert not is_cut_off(data[:at] + unknown + data[at + 4 : -100])
    assert not is_cut_off(tone() + b"more")
    assert not is_cut_off(b"<html>")
    assert not is_cut_off(b"")


@pytest.mark.parametrize("data", [*VIDEOS.values(), *SOUNDS.values()])
def test_wherever_a_medium_ends_nothing_breaks(data: bytes) -> None:
    assert not is_cut_off(data)
    for length in range(0, len(data), max(1, len(data) // 300)):
        is_cut_off(data[:length])


def test_media_by_name_are_looked_at_too() -> None:
    check = CheckMedia(CheckImage())
    whole = {"media": {"said": tone(), "seen": video()}}
    assert check(whole) == whole
    found: Any = check({"media": {"said": tone()[:900], "seen": video()}})
    assert found.reason == "a medium: cut off"
