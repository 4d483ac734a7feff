"""The stage that computes region or grid features of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.readers.reader import Drop
from pipelines.stages.stored_features import FeatureType, OnError, device_of, stored, unusable
from vision.features import backbones
from vision.features.region_sources import DETECTORS, GridRegions, RegionSource, load_detector
from vision.sequences.transforms.boxes_in_text import PREFIX
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.options.bounds import Cells, Count, CountOrZero, Location, Name, Seed, Share, Side, Size
from workbench.corpora.schema.members import image_kind
from workbench.sequences.sequence import Sample

Pixels = list[tuple[str, Tensor]]
"""The decoded images of a record with the names of their media; the name of a single image is empty."""


@dataclass(frozen=True)
class RegionFeatures:
    """Adds `regions` (features [n, d], boxes [n, 4], from a detector also classes and confidence) and `meta.backbone`.

    With `scores` the distribution over the classes is stored too; that of a grid's cells comes from the network's own
    classifier.

    `backbone` is a torchvision detector or a timm network; `weights` as in `vision.features.backbones.read_weights`.
    `size`, `grid` and `stage` are for a network, the other numbers for a detector. Features are stored as `dtype`. In a
    record of named media each image has its rows, with its name in `medium` [n]. With `caption_boxes` the boxes that
    captions refer to are regions too, the first ones, and each such caption as a whole is a mention of `region:N`. An
    unusable image stops the run, or its record is dropped if `on_error` says so. The network runs on `device` with
    `batch_size` records at once, on a GPU in half precision with `half`; these change only the speed and the rounding.
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
    caption_boxes: bool = False
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
        """The samples with their regions; a record with an image without regions is dropped."""
        results: list[Sample | Drop] = []
        for start in range(0, len(samples), self.batch_size):
            part = samples[start : start + self.batch_size]
            seen = [self._pixels(sample) for sample in part]
            usable = [pixels for images in seen if not isinstance(images, Drop) for _, pixels in images]
            drawn: list[np.ndarray] | None = None
            if self.caption_boxes:
                pairs = zip(part, seen, strict=True)
                drawn = [boxes_of(sample) for sample, found in pairs if not isinstance(found, Drop) for _ in found]
            with torch.autocast("cuda", torch.float16, enabled=self.half and device_of(self.device).startswith("cuda")):
                found = iter(self.source(usable, drawn) if usable else ())
            for sample, images in zip(part, seen, strict=True):
                if isinstance(images, Drop):
                    results.append(images)
                else:
                    results.append(self._with(sample, [(medium, next(found)) for medium, _ in images]))
        return results

    def _pixels(self, sample: Sample) -> Pixels | Drop:
        media = {"": sample["image"]} if "image" in sample else sample.get("media", {})
        try:
            return [(medium, self._image_tensor(data, _place(sample, medium))) for medium, data in media.items()]
        except BadValueError as error:
            return unusable(error, self.on_error, "images")

    def _image_tensor(self, data: bytes, where: str) -> Tensor:
        _check_storable(data, where)
        return self.source.pixels(data, where)

    def _with(self, sample: Sample, made: Sequence[tuple[str, dict[str, Any]]]) -> Sample | Drop:
        if not made or not all(len(regions["features"]) for _, regions in made):
            return Drop("no region")
        parts = [self._as_stored(regions, _place(sample, medium)) for medium, regions in made]
        regions = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if "image" not in sample:
            regions["medium"] = np.repeat([medium for medium, _ in made], [len(part["features"]) for part in parts])
        meta = {**sample.get("meta", {}), "backbone": self.source.identity}
        spans = {"caption_spans": spans_of_boxes(sample)} if self.caption_boxes and "caption_boxes" in sample else {}
        return {**sample, **spans, "regions": regions, "meta": meta}

    def _as_stored(self, regions: dict[str, Any], where: str) -> dict[str, np.ndarray]:
        regions = {**regions, "features": stored(regions["features"], self.dtype, where, self.backbone)}
        if "scores" in regions:
            regions["scores"] = regions["scores"].astype(self.dtype)
        return regions


def boxes_of(sample: Sample) -> np.ndarray:
    """The boxes that captions refer to [k, 4], in the order of the captions.

    Raises:
        WorkbenchError: the record has captions without boxes.
    """
    if sample.get("captions") and "caption_boxes" not in sample:
        raise WorkbenchError(
            f"{_place(sample, '')} has captions without boxes, which --caption-boxes needs; prepare a corpus "
            "with boxes (Visual Genome's region_descriptions.json, or lines with `captions` and `boxes`), or remove "
            "the option"
        )
    return np.array([box for box in sample.get("caption_boxes", ()) if box], np.float32).reshape(-1, 4)


def spans_of_boxes(sample: Sample) -> list[list[list[Any]]]:
    """The links of each caption, and a link of the whole caption to the number of its box among `boxes_of`."""
    spans: list[list[list[Any]]] = []
    number = 0
    for i, (caption, box) in enumerate(zip(sample["captions"], sample["caption_boxes"], strict=True)):
        linked = list(sample["caption_spans"][i]) if "caption_spans" in sample else []
        if box:
            linked.append([0, len(caption), f"{PREFIX}{number}", 1.0])
            number += 1
        spans.append(sorted(linked, key=lambda span: span[:2]))
    return spans


def _place(sample: Sample, medium: str) -> str:
    return f"image {sample['key']!r}" + (f", medium {medium!r}" if medium else "")


def _check_storable(image: bytes, where: str) -> None:
    """Refuse an image that our corpora cannot store, before its features are computed (third-party corpora may)."""
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
        detector.network.to(device_of(features.device))
        return detector
    network = backbones.load(
        features.backbone, features.weights, size=features.size, grid=features.grid, stage=features.stage
    )
    return GridRegions(network.to(device_of(features.device)), features.scores)
