"""The stages that make clips of videos, and tokens of clips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.readers.reader import Drop
from pipelines.stages.clip_codes import QuantizedClips
from pipelines.stages.clip_features import ClipFeatures
from pipelines.stages.media_checks import CheckVideo
from tests.videos import video
from vision.images.transforms import SquareCrop
from vision.video.clip_vocabulary import Vocabulary
from vision.video.videos import frames
from workbench.core.errors import WorkbenchError

OPTIONS = {"backbone": "resnet10t", "size": 32, "rate": 4.0}


def sample(data: bytes, key: str = "a") -> dict:
    return {"key": key, "video": data, "captions": ["x"], "meta": {"licence": "own"}}


def test_a_clip_is_the_mean_of_its_frames() -> None:
    stage = ClipFeatures(**OPTIONS, seconds=1.0, dtype="float32", batch_size=3)
    data = video(frames=10, rate=4.0)
    made = stage(sample(data))
    assert "video" not in made
    assert made["meta"]["backbone"] == stage.source.identity
    square, network = SquareCrop(32), stage.source.backbone
    shown = torch.stack([square(f.image, None) for f in frames(data, 4.0, "it")])
    with torch.inference_mode():
        single = [network(pixels[None])[0].mean(0).numpy() for pixels in shown]
    wanted = [np.mean(single[start : start + 4], 0) for start in (0, 4, 8)]
    np.testing.assert_allclose(made["clips"]["features"], wanted, atol=1e-5)
    np.testing.assert_allclose(made["clips"]["times"], [[0, 1], [1, 2], [2, 2.5]])
    kept = ClipFeatures(**OPTIONS, keep=True)(sample(data))
    assert kept["video"] == data
    assert kept["clips"]["features"].dtype == np.float16


def test_a_bad_video_stops_or_is_left_out() -> None:
    bad = sample(video()[:300])
    with pytest.raises(WorkbenchError, match=r"video 'a': the video is damaged.*--on-error skip"):
        ClipFeatures(**OPTIONS)(bad)
    assert ClipFeatures(**OPTIONS, on_error="skip")(bad) == Drop("damaged video")
    without = {name: value for name, value in bad.items() if name != "video"}
    assert ClipFeatures(**OPTIONS, on_error="skip")(without) == Drop("no video")


def test_videos_are_looked_into() -> None:
    assert CheckVideo()(sample(video())) == sample(video())
    assert CheckVideo(20)(sample(video())) == Drop("too small")
    assert CheckVideo()(sample(b"<html>")) == Drop("not a video")


@pytest.mark.parametrize(
    ("times", "late"), [([[0, 1]], False), ([[2.9, 7.9]], False), ([[0, 1], [1000, 2000]], True), ([[0, 900]], True)]
)
def test_captions_behind_the_end_are_of_another_video_or_unit(times: list[list[float]], late: bool) -> None:
    reported = {**sample(video(frames=12, rate=4.0)), "captions": ["x"] * len(times), "caption_times": times}
    assert (CheckVideo()(reported) == Drop("times behind the end")) is late
    skipping = ClipFeatures(**OPTIONS, on_error="skip")
    assert (skipping(reported) == Drop("times behind the end")) is late
    if late:
        with pytest.raises(WorkbenchError, match=r"captions after its end at 3 s; times are seconds.*skip"):
            ClipFeatures(**OPTIONS)(reported)


def test_clips_without_a_frame_are_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"--rate 0.25 takes a frame every 4 s.*allowed: --rate of 1 or more"):
        ClipFeatures(**{**OPTIONS, "rate": 0.25, "seconds": 1.0})


def test_tokens_are_of_the_clips_backbone(tmp_path: Path) -> None:
    vocabulary = Vocabulary.fit(np.eye(4, dtype=np.float32), 2, 2, "net")
    vocabulary.save(tmp_path / "v.safetensors")
    stage = QuantizedClips(str(tmp_path / "v.safetensors"), vocabulary.identity)
    clips = {"features": np.eye(4, dtype=np.float16), "times": np.zeros((4, 2), np.float32)}
    made = stage({"key": "a", "clips": clips, "meta": {"backbone": "net"}})
    np.testing.assert_array_equal(made["clips"]["codes"], vocabulary(np.eye(4, dtype=np.float32)))
    assert made["meta"]["codes"] == vocabulary.identity
    with pytest.raises(WorkbenchError, match="its clips have the backbone 'other', the vocabulary has 'net'"):
        stage({"key": "a", "clips": clips, "meta": {"backbone": "other"}})
    with pytest.raises(WorkbenchError, match="prepare clips"):
        stage({"key": "a"})
