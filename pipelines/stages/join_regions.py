"""Region features of other people, joined to the images of a corpus by their ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np

from pipelines.readers.reader import Drop
from pipelines.readers.regions.region_files import DamagedRegionsError, ForeignRegions, RegionFiles
from vision.images.boxes import check_boxes
from workbench.errors import WorkbenchError
from workbench.images import FAILURES, open_image
from workbench.options.bounds import Count, CountOrZero, Name, Share, Size
from workbench.sequences.sequence import Sample

_NUMBER = re.compile(r"(\d+)$")
LONG = 6
"""Digits at the end of an id that tell an image apart: COCO_val2014_000000391895 has twelve."""
OUTSIDE = 1.0
"""Pixels that a detector's box may stand out of the image by: rounding, and counting from 1."""


@dataclass(frozen=True)
class Found:
    """Where the features of each image are: (number of the file, place in it) by id, and ids by number."""

    files: tuple[RegionFiles, ...]
    places: Mapping[str, tuple[int, Any]]
    numbers: Mapping[int, str | None]

    def place(self, sample: Sample) -> tuple[int, Any] | None:
        """That of a sample: by its key, its image's name, or its id; else by the number that these end in."""
        names = ids_of(sample)
        exact = next((name for name in names if name in self.places), None)
        if exact is not None:
            return self.places[exact]
        found = (self.numbers.get(number) for name in names if (number := number_of(name)) is not None)
        name = next((name for name in found if name is not None), None)
        return None if name is None else self.places[name]


@dataclass(frozen=True)
class JoinRegions:
    """Adds `regions` and `meta.backbone`; a sample whose image has no features is dropped.

    Features of another size than `size` are refused. `boxes` says what the numbers of boxes are where the files leave
    it open, `layout` whether they are corners or a corner, width and height. Regions beyond `most`, and those of less
    confidence than `threshold` behind the first `least`, are left out, as UNITER does.
    """

    found: Found = field(compare=False, repr=False)
    backbone: Name
    size: Size
    dtype: Literal["float16", "float32"] = "float16"
    boxes: Literal["auto", "pixels", "relative"] = "auto"
    layout: Literal["corners", "sides"] = "corners"
    threshold: Share = 0.0
    least: CountOrZero = 10
    most: Count = 100
    on_error: Literal["stop", "skip"] = "stop"

    def __call__(self, sample: Sample) -> Sample | Drop:
        place = self.found.place(sample)
        if place is None:
            return Drop("no features of this image")
        file = self.found.files[place[0]]
        try:
            regions = self._regions(file.read(place[1]), sample)
        except DamagedRegionsError as error:
            if self.on_error == "skip":
                return Drop(str(error).partition(" (")[0].partition(":")[0])
            raise WorkbenchError(
                f"{file.path}, image {sample['key']!r}: {error}. Leave such images out with --on-error skip"
            ) from error
        if not len(regions["features"]):
            return Drop("no region")
        return {**sample, "regions": regions, "meta": {**sample.get("meta", {}), "backbone": self.backbone}}

    def _regions(self, foreign: ForeignRegions, sample: Sample) -> dict[str, np.ndarray]:
        features = foreign.arrays["features"]
        if features.ndim != 2 or features.shape[1] != self.size:
            raise WorkbenchError(
                f"image {sample['key']!r}: features of shape {list(features.shape)}, those before have "
                f"{self.size} numbers a region; name files of one backbone alone, or say --feature-size"
            )
        boxes = self._relative(foreign, sample)
        lengths = {name: len(value) for name, value in foreign.arrays.items()} | {"boxes": len(boxes)}
        if len(set(lengths.values())) != 1:
            raise DamagedRegionsError(f"unequal numbers of regions: {lengths}")
        stays = slice(self._count(foreign.arrays))
        arrays = {name: value[stays] for name, value in foreign.arrays.items()}
        if not np.isfinite(features).all() or np.abs(features).max(initial=0) > np.finfo(self.dtype).max:
            raise DamagedRegionsError(f"features that are not finite, or more than {self.dtype} holds")
        return {
            **arrays,
            "features": arrays["features"].astype(self.dtype),
            "boxes": boxes[stays].astype(np.float32),
            **({"scores": arrays["scores"].astype(self.dtype)} if "scores" in arrays else {}),
        }

    def _count(self, arrays: Mapping[str, np.ndarray]) -> int:
        if not self.threshold or "confidence" not in arrays:
            return self.most
        return min(self.most, max(self.least, int((arrays["confidence"] > self.threshold).sum())))

    def _relative(self, foreign: ForeignRegions, sample: Sample) -> np.ndarray:
        """Boxes as corners in 0..1."""
        boxes = np.asarray(foreign.boxes, np.float64)
        if boxes.ndim != 2 or boxes.shape[1] != 4 or not np.isfinite(boxes).all():
            raise DamagedRegionsError(f"boxes that are none: of shape {list(boxes.shape)}, or not finite")
        if self.layout == "sides":
            boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        relative = foreign.relative
        if self.boxes != "auto":
            relative = self.boxes == "relative"
        elif relative is None:
            relative = bool(boxes.max(initial=0) <= 1 + 1e-3)
        width, height = (1.0, 1.0) if relative else foreign.size or _size(sample)
        sides = np.array([width, height, width, height])
        beyond = np.maximum(-boxes, boxes - sides)
        if (beyond > (1e-3 if relative else OUTSIDE)).any():
            row = int(np.flatnonzero((beyond > (1e-3 if relative else OUTSIDE)).any(1))[0])
            raise DamagedRegionsError(
                f"a box outside of the image: {boxes[row].round(4).tolist()}, the image is {width:g} x {height:g}"
            )
        inside = np.clip(boxes / sides, 0, 1).astype(np.float32)
        try:
            check_boxes({"features": foreign.arrays["features"], "boxes": inside})
        except ValueError as error:
            raise DamagedRegionsError(f"boxes that are none: {error}") from error
        return inside


def ids_of(sample: Sample) -> list[str]:
    """What may be an image's id, in the order that it is looked for."""
    meta = sample.get("meta", {})
    image = PurePosixPath(str(meta.get("image", "")))
    told = [sample["key"], image.stem, image.name, *(str(meta[name]) for name in ("id", "image_id") if name in meta)]
    return [name for name in dict.fromkeys(told) if name]


def number_of(name: str) -> int | None:
    """The number that an id ends in, where this tells images apart: the whole id, or many digits."""
    digits = _NUMBER.search(name)
    return int(digits[1]) if digits and (digits[1] == name or len(digits[1]) >= LONG) else None


def find_regions(files: tuple[RegionFiles, ...]) -> Found:
    """List the images of all files; of an image that several have, the first file's features are taken."""
    places: dict[str, tuple[int, Any]] = {}
    numbers: dict[int, str | None] = {}
    for number, file in enumerate(files):
        for name, place in file.places():
            if name in places:
                continue
            places[name] = (number, place)
            ending = number_of(name)
            if ending is not None:
                numbers[ending] = None if ending in numbers else name
    return Found(files, places, numbers)


def _size(sample: Sample) -> tuple[float, float]:
    """Width and height of the sample's image."""
    try:
        width, height = open_image(sample["image"]).size
    except (KeyError, *FAILURES) as error:
        raise DamagedRegionsError("boxes in pixels, and no image to measure") from error
    return float(width), float(height)
