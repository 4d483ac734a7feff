"""Region or grid features of images, as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch

from pipelines.readers.reader import Drop
from vision.features import backbones
from vision.features.regions import DETECTORS, Grid, RegionSource, extract, load_detector
from workbench.errors import WorkbenchError
from workbench.options.bounds import Cells, Count, CountOrZero, Location, Name, Seed, Share, Side, Size
from workbench.sequences.sequence import Sample

BATCH = 16


@dataclass(frozen=True)
class RegionFeatures:
    """Adds `regions` (features [n, d], boxes [n, 4], from a detector also classes and confidence) and `meta.backbone`.

    `backbone` is a torchvision detector or a timm network; `weights` as in `vision.features.backbones.read_weights`.
    `size`, `grid` and `stage` are for a network, the other numbers for a detector. Features are stored as `dtype`.
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
    dtype: Literal["float16", "float32"] = "float16"
    device: Name = "cpu"
    seed: Seed = 0

    @property
    def source(self) -> RegionSource:
        return _source(self)

    def __call__(self, sample: Sample) -> Sample | Drop:
        return self.batch([sample])[0]

    def batch(self, samples: Sequence[Sample]) -> list[Sample | Drop]:
        """The samples with their regions; an image without a region is dropped."""
        results: list[Sample | Drop] = []
        for start in range(0, len(samples), BATCH):
            part = samples[start : start + BATCH]
            found = extract([s["image"] for s in part], self.source, [s["key"] for s in part])
            results += [self._with(sample, regions) for sample, regions in zip(part, found, strict=True)]
        return results

    def _with(self, sample: Sample, regions: dict[str, Any]) -> Sample | Drop:
        if not len(regions["features"]):
            return Drop("no region")
        regions = {**regions, "features": self._stored(regions["features"], sample["key"])}
        meta = {**sample.get("meta", {}), "backbone": self.source.identity}
        return {**sample, "regions": regions, "meta": meta}

    def _stored(self, features: np.ndarray, key: str) -> np.ndarray:
        """The features as `dtype`.

        Raises:
            WorkbenchError: they are more than it holds, or not finite.
        """
        most = float(np.abs(features).max())
        if most <= float(np.finfo(self.dtype).max):
            return features.astype(self.dtype)
        if not np.isfinite(most):
            raise WorkbenchError(
                f"image {key!r}: {self.backbone} gives features that are not finite; check its weights"
            )
        raise WorkbenchError(
            f"image {key!r}: {self.backbone} gives features up to {most:.3g}, more than {self.dtype} holds "
            f"({np.finfo(self.dtype).max:,.0f}); store them with --dtype float32"
        )


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
        )
        detector.network.to(features.device)
        return detector
    network = backbones.load(
        features.backbone, features.weights, size=features.size, grid=features.grid, stage=features.stage
    )
    return Grid(network.to(features.device))
