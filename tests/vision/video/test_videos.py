"""Frames of videos at an even rate."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.videos import frame, video
from vision.video.videos import frames, length, open_video
from workbench.core.errors import BadValueError

av = pytest.importorskip("av")


def greys(data: bytes, rate: float) -> list[tuple[float, int]]:
    return [(round(f.time, 6), f.image.getpixel((0, 0))[0]) for f in frames(data, rate, "it")]


def test_frames_are_those_shown_at_the_times() -> None:
    data = video(frames=12, rate=4.0)
    assert greys(data, 4.0) == [(number / 4, 10 * number) for number in range(12)]
    assert greys(data, 1.0) == [(0, 0), (1, 40), (2, 80)]
    assert greys(data, 8.0) == [(number / 8, 10 * (number // 2)) for number in range(24)], "shown several times"


def test_a_title_in_any_bytes_is_passed_over() -> None:
    """PyAV before 19 refuses bytes that are no UTF-8 unless it is asked to ignore them; from 19 on it cannot be."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        container.metadata["title"] = "TITLE-OF-IT"
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 32, 32
        container.mux(stream.encode(av.VideoFrame(32, 32, "yuv420p")))
        container.mux(stream.encode())
    data = file.getvalue().replace(b"TITLE-OF-IT", b"\xff\xfe\xe9\xe8-OF-IT")
    assert b"\xff\xfe" in data
    assert len(list(frames(data, 5.0, "it"))) == 1
    assert length(data, "it") == pytest.approx(0.2)


@pytest.mark.parametrize("format", ["mp4", "webm"])
def test_encoded_videos(format: str) -> None:
    file = io.BytesIO()
    codec = {"mp4": "mpeg4", "webm": "libvpx"}[format]
    with av.open(file, "w", format=format) as container:
        stream = container.add_stream(codec, rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        images = list(frames(video(frames=12, rate=5.0), 5.0, "it"))
        for photograph in images:
            container.mux(stream.encode(av.VideoFrame.from_image(photograph.image.resize((32, 32)))))
        container.mux(stream.encode())
    found = greys(file.getvalue(), 5.0)
    assert [time for time, _ in found] == pytest.approx([number / 5 for number in range(12)])
    assert all(abs(grey - 10 * number) < 8 for number, (_, grey) in enumerate(found))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "not a video"),
        (b"", "not a video"),
        (frame(0), "not a video"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n", "not a video"),
        (video()[:300], "damaged video"),
        (video()[:900], "damaged video"),
        (b"\x00\x00\x00\x18ftypmp42", "damaged video"),
    ],
)
def test_what_is_no_video(data: bytes, reason: str) -> None:
    with pytest.raises(BadValueError, match="it: ") as caught:
        list(frames(data, 1.0, "it"))
    assert caught.value.reason == reason


def test_a_playlist_that_says_it_is_a_video_opens_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "other.avi"
    other.write_bytes(video())
    for start in (b"RIFF\x04\x00\x00\x00AVI ", b"\x1aE\xdf\xa3"):
        with pytest.raises(BadValueError):
            list(frames(start + f"\n#EXTM3U\n#EXTINF:1,\n{other}\n".encode(), 1.0, "it"))


def test_frames_are_kept_as_they_are_encoded() -> None:
    images = [frame(number, format="JPEG") for number in range(3)]
    assert all(photograph in open_video(images, 1.0, "it") for photograph in images)
    for bad, reason in (
        ([], "no frame"),
        ([frame(0), frame(0, (8, 8))], "frames differ"),
        ([frame(0), frame(0, format="JPEG")], "frames differ"),
        ([b"text"], "not a frame"),
        ([frame(0, format="JPEG")[:20]], "damaged frame"),
    ):
        with pytest.raises(BadValueError) as caught:
            open_video(bad, 1.0, "it")
        assert caught.value.reason == reason
