"""Stored features of a video's clips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from vision.images.decoding import place
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.sequences.missing_fields import missing
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample

Sampling = Annotated[int, Ge(1), Le(1000)]


class ClipsProcessor(ImageProcessor):
    """Precomputed features of the first `max_clips` clips of a video, with their places (`position_ids`) from 0.

    Their `boxes` are intervals of the total time of the clips, over the whole image: (from, 0, to, 1).
    As with regions, the `backbone` is compared with that of the corpus.

    Args:
        backbone: the extractor of the features in the corpus; `null` in a recipe: that of the task's corpus.
        max_clips: the largest number of clips.
        every: only every n-th clip is read, n drawn from 1 to this number (VideoBERT: 5); evaluation reads all.
    """

    reads: tuple[str, ...] = ("clips",)
    of_corpora: ClassVar[Mapping[str, str]] = {"backbone": "backbone"}

    def __init__(self, backbone: Name, max_clips: Count = 48, every: Sampling = 1) -> None:
        self.backbone, self.max_clips, self.every = backbone, max_clips, every

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        clips, rows = self._chosen(sample, rng)
        boxes = spaced_places(clips["times"][rows])
        positions = np.arange(len(boxes), dtype=np.int64)
        return {"features": clips["features"][rows].copy(), "boxes": boxes, "position_ids": positions}

    def _chosen(self, sample: Sample, rng: np.random.Generator | None) -> tuple[Fields, slice]:
        """The clips of a sample and which of them are read.

        Raises:
            WorkbenchError: it has none, or those of another backbone.
        """
        if "clips" not in sample:
            raise missing(sample, "clips")
        found, where, clips = sample.get("meta", {}).get("backbone"), place(sample), sample["clips"]
        if found != self.backbone:
            raise WorkbenchError(
                f"{where}: the clips are of backbone {found!r}, but this model needs those of {self.backbone!r}. "
                "Extract the corpus again with that backbone, or train a model on this one"
            )
        if "features" not in clips or np.shape(clips.get("times")) != (len(clips["features"]), 2):
            raise BadValueError(
                where, f"clips need features [n, d] and times [n, 2]; found {sorted(clips)}", clips, "unusable clips"
            )
        step = 1 if rng is None or self.every == 1 else int(rng.integers(1, self.every + 1))
        return clips, slice(0, self.max_clips * step, step)


def spaced_places(times: np.ndarray) -> np.ndarray:
    """Intervals of time [n, 2] as boxes [n, 4] over their total time, float32."""
    first, last = times.min(initial=np.inf), times.max(initial=-np.inf)
    inside = (times - first) / max(last - first, 1e-6) if len(times) else times
    boxes = np.zeros((len(times), 4), np.float32)
    boxes[:, [0, 2]], boxes[:, 3] = inside.clip(0, 1), 1
    return boxes
