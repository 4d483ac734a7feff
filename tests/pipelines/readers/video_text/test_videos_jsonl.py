"""The video-text format `videos-jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import make_reader
from pipelines.readers.reader import Drop, MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from tests.videos import frame, video
from vision.video.videos import frames
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    return {"video": f"{i}.avi", "captions": ["b", "a"], "times": [[1.0, 2.0], [0, 1]], "url": "x"}


CASE = ReaderCase(
    excused={"streams": "the rows of one video are gathered"},
    text=json_lines(row),
    alongside=lambda records: {f"{i}.avi": video(i) for i in range(records)},
    needs="av",
)


def read(folder: Path, rows: list[dict[str, Any]], **options: Any) -> list[Any]:
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    reader = make_reader("video-text", None, [file], options)
    return [reader.read(record) for record in reader.records([file])]


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    (tmp_path / "a.avi").write_bytes(video())
    return tmp_path


def test_rows_of_a_video_are_gathered_in_the_order_of_their_times(videos: Path) -> None:
    lines = [
        {"video": "a.avi", "caption": c, "start": s, "end": s + 1} for c, s in (("late", 2), (" ", 1), ("early", 0))
    ]
    [sample] = read(videos, lines)
    assert sample["captions"] == ["early", "late"], "an empty caption goes with its time"
    assert sample["caption_times"] == [[0, 1], [2, 3]]
    assert sample["video"] == video()
    [spoken] = read(videos, [{"video": "a.avi", "segments": [{"start": 0, "end": 1.5, "text": " hello "}]}])
    assert (spoken["captions"], spoken["caption_times"]) == (["hello"], [[0, 1.5]])


def test_frames_in_a_folder_become_a_video_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "videos" / "b").mkdir(parents=True)
    for number in range(12):
        (tmp_path / "videos" / "b" / f"f{number}.png").write_bytes(frame(20 * number))
    [sample] = read(tmp_path, [{"video": "b", "frame_rate": 2}])
    shown = [(f.time, f.image.getpixel((0, 0))[0]) for f in frames(sample["video"], 2.0, "b")]
    assert shown == [(number / 2, 20 * number) for number in range(12)]
    (tmp_path / "videos" / "b" / "f12.png").write_bytes(frame(0, (8, 8)))
    assert read(tmp_path, [{"video": "b"}]) == [Drop("frames differ")]


def test_a_video_that_is_not_there(videos: Path) -> None:
    assert read(videos, [row(0) | {"video": "a.avi"}, row(7)])[1] == Drop("video not found")
    with pytest.raises(WorkbenchError, match=r"none of the 1 videos .*'7.avi'.* --videos"):
        read(videos, [row(7)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"times": [[0, 1]]}, "every caption needs a time"),
        ({"times": [[2, 1], [0, 1]]}, r"\[from, to\] in seconds"),
        ({"times": [[0, "x"], [0, 1]]}, r"\[from, to\] in seconds"),
        ({"captions": "x", "times": []}, "'captions' has the wrong type"),
        ({"segments": [1]}, "'segments' must be a list of objects"),
        ({"frame_rate": 0}, "frame_rate must be"),
    ],
)
def test_what_is_malformed_is_reported(videos: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        read(videos, [row(0) | {"video": "a.avi"} | changed])


def test_some_captions_with_times_and_some_without(videos: Path) -> None:
    with pytest.raises(MalformedError, match="some captions of a video have times"):
        read(videos, [{"video": "a.avi", "caption": "x", "start": 0, "end": 1}, {"video": "a.avi", "caption": "y"}])
