"""Videos of photos show them one after the other; words of read captions stand where they are said."""

from __future__ import annotations

import ctypes
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.photo_videos import SCENES, SECONDS, write_videos
from benchmarks.spoken_captions import LIBRARY, VOICES, Said, speak, words, write_spoken
from pipelines.readers.speech_text.sounds_jsonl import SoundsJsonl
from pipelines.readers.video_text.videos_jsonl import VideosJsonl
from vision.video.videos import frames

GREYS = (20, 80, 140, 200)


def write_photos(folder: Path) -> tuple[Path, Path]:
    rows = [{"image": f"{grey}.png", "captions": [f"all is {grey}", f"it is {grey}"]} for grey in GREYS]
    captions, images = folder / "captions.jsonl", folder / "images.tar"
    captions.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, rows[0]]))
    with tarfile.open(images, "w") as tar:
        for grey in GREYS:
            file = io.BytesIO()
            Image.new("RGB", (40, 30), (grey,) * 3).save(file, "PNG")
            member = tarfile.TarInfo(f"{grey}.png")
            member.size = file.tell()
            tar.addfile(member, io.BytesIO(file.getvalue()))
    return captions, images


def test_a_caption_is_reported_while_its_photo_is_seen(tmp_path: Path) -> None:
    captions, images = write_photos(tmp_path)
    write_videos(captions, images, tmp_path / "videos.jsonl")
    (video,) = VideosJsonl(videos=[str(tmp_path / "videos")]).samples([tmp_path / "videos.jsonl"])
    shown = [(frame.time, np.asarray(frame.image).mean()) for frame in frames(video["video"], 2, "it")]
    assert len(video["captions"]) == SCENES
    assert len(shown) == SCENES * SECONDS * 2
    for caption, (begin, end) in zip(video["captions"], video["caption_times"], strict=True):
        greys = [grey for time, grey in shown if begin <= time < end]
        assert greys == pytest.approx([int(caption.split()[-1])] * 6, abs=3)


def test_words_last_until_the_next_mark() -> None:
    text = "T-shirts aren't red , OK ?"
    marks = [(0, 0), (2, 2), (5, 9), (7, 16), (9, -1), (10, 22), (12, -1)]
    found = words(text, Said(np.zeros(12, np.int16), 1, marks))
    assert [(word["word"], word["start"], word["end"]) for word in found] == [
        ("T-shirts", 0, 5),
        ("aren't", 5, 7),
        ("red", 7, 9),
        ("OK", 10, 12),
    ]


def has_espeak() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_espeak(), reason="the library of espeak-ng is not installed")
def test_captions_are_spoken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no voice 'nobody'"):
        speak("a", "nobody")
    said = "Two dogs , one of them 3 years old , aren't running ."
    (tmp_path / "captions.jsonl").write_text(f"{json.dumps({'captions': [said]})}\n" * (len(VOICES) + 1))
    write_spoken(tmp_path / "captions.jsonl", tmp_path / "spoken.jsonl")
    sounds = [*SoundsJsonl(sounds=[str(tmp_path / "spoken")]).samples([tmp_path / "spoken.jsonl"])]
    for sound in sounds:
        spoken = [said[start:end] for start, end, *_ in sound["words"]]
        assert spoken == ["Two", "dogs", "one", "of", "them", "3", "years", "old", "aren't", "running"]
        times = [time for *_, begin, end in sound["words"] for time in (begin, end)]
        assert times == sorted(times)
        assert 1 < times[-1] < 8
    assert sounds[0]["sound"] != sounds[1]["sound"]
