"""Region or grid features of images, as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pipelines.readers.reader import Drop
from pipelines.stages.stored_features import FeatureType, stored
from pipelines.stages.unusable import OnError, unusable
from vision.features import backbones
from vision.features.regions import DETECTORS, Grid, RegionSource, load_detector
from workbench.corpora.members import image_kind
from workbench.errors import BadValueError, WorkbenchError
from workbench.options.bounds import Cells, Count, CountOrZero, Location, Name, Seed, Share, Side, Size
from workbench.sequences.sequence import Sample

NAMED = "named media"


@dataclass(frozen=True)
class RegionFeatures:
    """Adds `regions` (features [n, d], boxes [n, 4], from a detector also classes and confidence) and `meta.backbone`.

    With `scores` the distribution over the classes is kept too, of a network's cells by its own classifier.

    `backbone` is a torchvision detector or a timm network; `weights` as in `vision.features.backbones.read_weights`.
    `size`, `grid` and `stage` are for a network, the other numbers for a detector. Features are stored as `dtype`. An
    image that cannot be used, or a record of named media, stops the run, or is dropped where `on_error` says so. The
    network runs on `device` with `batch_size` images at once, on a GPU in half precision where `half`, which decide
    nothing but the time it takes and what is rounded away.
    """

    backbone: Name
    weights: Location | None = None
    size: Side = 224
    grid: Cells = 7
    stage: CountOrZero | None = None
    threshold: Share = 0.2
    min_regions: CountOrZero = 10
    max_regions: Count = 100
    num_classes: Size = 91
    scores: bool = False
    dtype: FeatureType = "float16"
    seed: Seed = 0
    on_error: OnError = "stop"
    batch_size: Count = field(default=16, compare=False)
    device: Name = field(default="cpu", compare=False)
    half: bool = field(default=False, compare=False)

    @property
    def source(self) -> RegionSource:
        return _source(self)

    def __call__(self, sample: Sample) -> Sample | Drop:
        return self.batch([sample])[0]

    def batch(self, samples: Sequence[Sample]) -> list[Sample | Drop]:
        """The samples with their regions; an image without a region is dropped."""
        results: list[Sample | Drop] = []
        for start in range(0, len(samples), self.batch_size):
            part = samples[start : start + self.batch_size]
            seen = [self._pixels(sample) for sample in part]
            usable = [pixels for pixels in seen if not isinstance(pixels, Drop)]
            with torch.autocast("cuda", torch.float16, enabled=self.half and self.device.startswith("cuda")):
                found = iter(self.source(usable) if usable else ())
            for sample, pixels in zip(part, seen, strict=True):
                results.append(pixels if isinstance(pixels, Drop) else self._with(sample, next(found)))
        return results

    def _pixels(self, sample: Sample) -> Tensor | Drop:
        where = f"image {sample['key']!r}"
        try:
            if "image" not in sample:
                raise BadValueError(
                    where, "it has named media and no `image`; features are of one image", sample, NAMED
                )
            _check_storable(sample["image"], where)
            return self.source.pixels(sample["image"], where)
        except BadValueError as error:
            return unusable(error, self.on_error, "images")

    def _with(self, sample: Sample, regions: dict[str, Any]) -> Sample | Drop:
        if not len(regions["features"]):
            return Drop("no region")
        regions = {
            **regions,
            "features": stored(regions["features"], self.dtype, f"image {sample['key']!r}", self.backbone),
        }
        if "scores" in regions:
            regions["scores"] = regions["scores"].astype(self.dtype)
        meta = {**sample.get("meta", {}), "backbone": self.source.identity}
        return {**sample, "regions": regions, "meta": meta}


def _check_storable(image: bytes, where: str) -> None:
    """Refuse, before its features are computed, an image that a corpus of ours cannot hold (somebody else's may)."""
    try:
        image_kind(image)
    except WorkbenchError as error:
        raise BadValueError(where, str(error), image, "neither JPEG nor PNG nor WebP") from error


@lru_cache(maxsize=1)
def _source(features: RegionFeatures) -> RegionSource:
    """The network, loaded once in each process; random weights are the same in each."""
    torch.manual_seed(features.seed)
    if features.backbone in DETECTORS:
        detector = load_detector(
            features.backbone,
            features.weights,
            num_classes=features.num_classes,
            threshold=features.threshold,
            min_regions=features.min_regions,
            max_regions=features.max_regions,
            scores=features.scores,
        )
        detector.network.to(features.device)
        return detector
    network = backbones.load(
        features.backbone, features.weights, size=features.size, grid=features.grid, stage=features.stage
    )
    return Grid(network.to(features.device), features.scores)
