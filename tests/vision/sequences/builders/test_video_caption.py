"""The builder `vision.video_caption`: captions with the clips of their time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, tokenizer
from vision.sequences.builders.video_caption import VideoCaptionBuilder, within
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample

VIDEO = {"image_processor": "vision.clips", "backbone": "made-up", "every": 2}
EXCUSED_SMALL = {"small": "captions make its sequences"}
CASES = {"": BuilderCase({"video": VIDEO}, excused=EXCUSED_SMALL)}


def video(number: int = 0, captions: int = 4) -> Sample:
    """Clips of a second each, and captions of two."""
    clips = {
        "features": np.arange(2 * captions, dtype=np.float16)[:, None] + 100 * number,
        "times": np.stack([np.arange(2 * captions), np.arange(2 * captions) + 1], 1).astype(np.float32),
    }
    spoken = [f"river {chr(97 + i)}" for i in range(captions)]
    times = [[2.0 * i, 2.0 * i + 2] for i in range(captions)]
    meta = {"backbone": "made-up"}
    return {
        "key": f"v{number}",
        "draw": (number,),
        "captions": spoken,
        "caption_times": times,
        "clips": clips,
        "meta": meta,
    }


def built(samples: list[Sample], seed: int = 0, **options: Any) -> list[Any]:
    video = {"image_processor": "vision.clips", "backbone": "made-up"}
    builder = VideoCaptionBuilder(tokenizer(), 64, options.pop("video", video), **options)
    return builder(builder.arrange(samples, draws(seed)), draws(seed))


def clips_of(sequence: Any) -> list[int]:
    return sequence.streams["video"]["features"][:, 0].astype(int).tolist()


def test_each_caption_has_the_clips_of_its_time() -> None:
    made = built([video(), video(1)])
    assert [clips_of(s) for s in made] == [[2 * i + 100 * n, 2 * i + 1 + 100 * n] for n in (0, 1) for i in range(4)]
    assert len({s.draw for s in made}) == 8
    assert [s.streams["video"]["position_ids"].tolist() for s in made] == [[0, 1]] * 8
    np.testing.assert_array_equal(made[0].streams["video"]["boxes"], [[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    again = VideoCaptionBuilder(
        tokenizer(), 64, {"image_processor": "vision.clips", "backbone": "made-up"}
    ).evaluating()
    assert [clips_of(s) for s in again([video()], draws())] == [clips_of(s) for s in made[:4]], "without arrange too"


def test_a_caption_behind_the_end_of_the_video_is_left_out_and_counted() -> None:
    """Milliseconds read as seconds: the caption would wrongly get the last clip."""
    reported = {**video(), "caption_times": [[0.0, 2.0], [2000.0, 4000.0], [4000.0, 6000.0], [6000.0, 8000.0]]}
    builder = VideoCaptionBuilder(tokenizer(), 64, {"image_processor": "vision.clips", "backbone": "made-up"})
    made = builder(builder.arrange([reported], draws()), draws())
    assert [clips_of(sequence) for sequence in made] == [[0, 1]]
    assert builder.take_dropped() == {"captions behind the end of the video": 3}
    near = {**video(captions=1), "captions": ["a"], "caption_times": [[2.5, 4.0]]}
    assert [clips_of(s) for s in built([near])] == [[1]], "a video ends a little later than its last clip"
    other = {**reported, "captions": ["a"], "caption_times": [[2000.0, 4000.0]]}
    assert built([other]) == []


def test_pairs_are_neighbours_of_one_video() -> None:
    starts = set()
    for seed in range(30):
        made = built([video(), video(1)], seed, captions="one", pairs=2)
        assert [s.key for s in made] == ["v0", "v0", "v1", "v1"]
        first, second = clips_of(made[0]), clips_of(made[1])
        assert second == [clip + 2 for clip in first]
        starts.add(first[0])
    assert starts == {0, 2, 4}
    assert len(built([video(captions=1)], captions="one", pairs=3)) == 1


def test_joined_captions_have_the_clips_of_all() -> None:
    lengths = []
    for seed in range(60):
        [sequence] = built([video(captions=8)], seed, captions="one", joined=3)
        words = (sequence.length("text") - 2) // 2 or 1
        lengths.append(len(clips_of(sequence)))
        assert lengths[-1] == 2 * round(words) or words != int(words)
    assert set(lengths) == {2, 4, 6}


def test_one_kind_alone() -> None:
    for sequence in built([video()], words=False):
        assert sequence.length("text") == 2
        assert sequence.length("video") == 2
    silent = {name: value for name, value in video().items() if name not in ("captions", "caption_times")}
    [sequence] = built([silent], words=False)
    assert (sequence.length("text"), sequence.length("video")) == (2, 8)
    assert all("video" not in sequence.streams for sequence in built([video()], video=None))
    with pytest.raises(WorkbenchError, match="no 'captions'"):
        built([silent])


def test_without_times_every_caption_has_all_clips() -> None:
    sample = video()
    del sample["caption_times"]
    assert [len(clips_of(s)) for s in built([sample])] == [8] * 4


def test_the_clips_of_a_time() -> None:
    times = np.float32([[0, 1], [1, 2], [2, 3], [8, 9]])
    assert within(times, 0.5, 2.0).tolist() == [0, 1]
    assert within(times, 4.0, 5.0).tolist() == [2], "none: the nearest"
    assert within(times[:0], 0, 1).tolist() == []


def test_neighbours_need_places_that_are_drawn() -> None:
    with pytest.raises(WorkbenchError, match="need `captions: one`"):
        built([video()], pairs=2)
