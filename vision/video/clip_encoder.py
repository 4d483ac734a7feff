"""Features of clips, for VideoBERT, CBT and UniVL, from a backbone of single frames.

    source(video, where) -> {features [n, d], times [n, 2]}, float32; times in seconds

A video is cut into successive clips. A clip's feature is the mean of its frames' features, each the mean over the cells
of the backbone's grid.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vision.features.backbones import GridBackbone
from vision.images.transforms import SquareCrop
from vision.video.videos import VideoFrame, frames
from workbench.core.errors import BadValueError
from workbench.sequences.sequence import Fields

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIP_LIMIT = 100_000


class ClipEncoder:
    """An extractor of clip features from videos.

    Args:
        seconds: length of a clip; the last one may be shorter.
        rate: frames per second to encode.
        batch_size: frames in a batch of the backbone.
    """

    def __init__(self, backbone: GridBackbone, seconds: float, rate: float, batch_size: int = 16) -> None:
        self.backbone: GridBackbone = backbone.eval()
        self.seconds, self.rate, self.batch_size = seconds, rate, batch_size
        self.square = SquareCrop(backbone.size)
        self.identity = f"{backbone.identity}:{seconds:g}s:{rate:g}fps"

    def __call__(self, video: bytes, where: str) -> Fields:
        """
        Raises:
            BadValueError: the video cannot be used; `where` names it.
        """
        features: list[np.ndarray] = []
        times: list[list[float]] = []
        for number, seen in groupby(frames(video, self.rate, where), self._number):
            if len(features) >= CLIP_LIMIT:
                raise BadValueError(where, f"it has more than {CLIP_LIMIT:,} clips", video, "too many clips")
            total, count, end = self._sum(seen)
            features.append(total / count)
            times.append([number * self.seconds, min((number + 1) * self.seconds, end)])
        return {"features": np.stack(features), "times": np.asarray(times, np.float32)}

    def _number(self, frame: VideoFrame) -> int:
        return int((frame.time + 1e-6) / self.seconds)

    def _sum(self, seen: Iterator[VideoFrame]) -> tuple[np.ndarray, int, float]:
        """Accumulator of a clip: the sum of its frames' features, their number, and the end of the last one."""
        total, count, end = np.zeros(self.backbone.width, np.float32), 0, 0.0
        waiting: list[Tensor] = []
        for frame in seen:
            waiting.append(self.square(frame.image, None))
            count, end = count + 1, frame.time + 1 / self.rate
            if len(waiting) == self.batch_size:
                total, waiting = total + self._features(waiting), []
        return (total + self._features(waiting) if waiting else total), count, end

    @torch.inference_mode()
    def _features(self, pixels: list[Tensor]) -> np.ndarray:
        found: np.ndarray = (
            self.backbone(torch.stack(pixels).to(self.backbone.mean.device)).mean(1).float().sum(0).cpu().numpy()
        )
        return found
