"""The stage that computes features of video clips."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch

from pipelines.readers.reader import Drop
from pipelines.stages.stored_features import FeatureType, OnError, device_of, stored, unusable
from pipelines.stages.truncation import LATE, are_late
from vision.features import backbones
from vision.video.clip_encoder import ClipEncoder
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Location, Name, Positive, Seed, Side
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class ClipFeatures:
    """Adds `clips` (features [n, d], times [n, 2]) and `meta.backbone`, and removes the video.

    `backbone` is a timm network, with `weights` as in `vision.features.backbones.read_weights`. It encodes `rate`
    frames a second of `size` x `size` pixels; a clip is `seconds` long. Features are stored as `dtype`; `keep` keeps
    the video. An unusable video stops the run, or is dropped if `on_error` says so. The network runs on `device` with
    `batch_size` frames at once; both change only the speed.
    """

    backbone: Name
    weights: Location | None = None
    size: Side = 224
    stage: CountOrZero | None = None
    seconds: Positive = 1.5
    rate: Positive = 20.0
    keep: bool = False
    dtype: FeatureType = "float16"
    seed: Seed = 0
    on_error: OnError = "stop"
    batch_size: Count = field(default=16, compare=False)
    device: Name = field(default="cpu", compare=False)

    def __post_init__(self) -> None:
        if self.rate * self.seconds < 1:
            raise WorkbenchError(
                f"--rate {self.rate:g} takes a frame every {1 / self.rate:g} s, and clips of {self.seconds:g} s would "
                f"be without any; allowed: --rate of {1 / self.seconds:g} or more, or longer clips (--seconds)"
            )

    @property
    def source(self) -> ClipEncoder:
        return _source(self)

    def __call__(self, sample: Sample) -> Sample | Drop:
        where = f"video {sample['key']!r}"
        try:
            if "video" not in sample:
                raise BadValueError(where, "it has no video, only clips made before", sample, "no video")
            clips = self.source(sample["video"], where)
            if are_late(sample.get("caption_times", ()), float(clips["times"][-1, 1])):
                detail = f"it has captions after its end at {clips['times'][-1, 1]:g} s; times are seconds"
                raise BadValueError(where, detail, sample["caption_times"], LATE.reason)
        except BadValueError as error:
            return unusable(error, self.on_error, "videos")
        clips = {**clips, "features": stored(clips["features"], self.dtype, where, self.backbone)}
        kept = {name: value for name, value in sample.items() if name != "video" or self.keep}
        return {**kept, "clips": clips, "meta": {**sample.get("meta", {}), "backbone": self.source.identity}}


@lru_cache(maxsize=1)
def _source(stage: ClipFeatures) -> ClipEncoder:
    """The network, loaded once in each process; random weights are the same in each."""
    torch.manual_seed(stage.seed)
    network = backbones.load(stage.backbone, stage.weights, size=stage.size, grid=1, stage=stage.stage)
    return ClipEncoder(network.to(device_of(stage.device)), stage.seconds, stage.rate, stage.batch_size)
