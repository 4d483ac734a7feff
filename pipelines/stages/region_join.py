"""The stage that joins precomputed region features to the images of a corpus by their ids."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np

from pipelines.readers.reader import Drop
from pipelines.readers.regions.region_files import DamagedRegionsError, ForeignRegions, RegionFiles
from vision.images.boxes import check_boxes
from workbench.core.errors import WorkbenchError
from workbench.core.images import FAILURES, open_image
from workbench.core.options.bounds import Count, CountOrZero, Name, Share, Size
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)
_NUMBER = re.compile(r"(\d+)$")
LONG = 6
"""Fewest digits at the end of an id that identify an image: COCO_val2014_000000391895 has twelve."""
OUTSIDE = 1.0
"""Pixels that a detector's box may exceed the image by: rounding, and counting from 1."""


@dataclass(frozen=True)
class FeatureIndex:
    """The place of each image's features: (number of the file, place in it) by id, and ids by number."""

    files: tuple[RegionFiles, ...]
    places: Mapping[str, tuple[int, Any]]
    numbers: Mapping[int, str | None]

    def images(self, sample: Sample) -> dict[str, tuple[int, Any] | None]:
        """The places of a sample's images by the names of the media; a single image has the name `""`."""
        return {medium: self._place(names) for medium, names in ids_of(sample).items()}

    def _place(self, names: Sequence[str]) -> tuple[int, Any] | None:
        """The place by a key, a name or an id; else by the number at their end."""
        exact = next((name for name in names if name in self.places), None)
        if exact is not None:
            return self.places[exact]
        found = (self.numbers.get(number) for name in names if (number := number_of(name)) is not None)
        name = next((name for name in found if name is not None), None)
        return None if name is None else self.places[name]


@dataclass(frozen=True)
class JoinRegions:
    """Adds `regions` and `meta.backbone`; a sample with an image that has no features is dropped.

    In a record of named media each image has its rows, with its name in `medium` [n], as in `RegionFeatures`.
    Features of another size than `size` are refused. `boxes` is the unit of boxes where the files do not state it,
    `layout` whether they are corners or a corner, width and height. Regions beyond `most` are dropped, and so are those
    after the first `least` with a lower confidence than `threshold`, as UNITER does.
    """

    found: FeatureIndex = field(compare=False, repr=False)
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
        found: dict[str, dict[str, np.ndarray]] = {}
        for medium, place in self.found.images(sample).items():
            if place is None:
                return Drop("no features of this image")
            file, where = self.found.files[place[0]], place_of(sample, medium)
            image = sample["media"][medium] if medium else sample.get("image")
            try:
                found[medium] = self._regions(file.read(place[1]), image, where)
            except DamagedRegionsError as error:
                if self.on_error == "skip":
                    return Drop(str(error).partition(" (")[0].partition(":")[0])
                raise WorkbenchError(
                    f"{file.path}, {where}: {error}. Leave such images out with --on-error skip"
                ) from error
            if not len(found[medium]["features"]):
                return Drop("no region")
        meta = {**sample.get("meta", {}), "backbone": self.backbone}
        return {**sample, "regions": together(found, place_of(sample, "")), "meta": meta}

    def _regions(self, foreign: ForeignRegions, image: bytes | None, where: str) -> dict[str, np.ndarray]:
        features = foreign.arrays["features"]
        if features.ndim != 2 or features.shape[1] != self.size:
            raise WorkbenchError(
                f"{where}: features of shape {list(features.shape)}; needed: {self.size} numbers a region, as "
                "--feature-size says or, without it, the first image has. Name files of one backbone only"
            )
        boxes = self._relative(foreign, image)
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

    def _relative(self, foreign: ForeignRegions, image: bytes | None) -> np.ndarray:
        """Boxes as corners in 0..1."""
        boxes = np.asarray(foreign.boxes, np.float64)
        if boxes.ndim != 2 or boxes.shape[1] != 4 or not np.isfinite(boxes).all():
            raise DamagedRegionsError(f"invalid boxes: of shape {list(boxes.shape)}, or not finite")
        if self.layout == "sides":
            boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        relative = foreign.relative
        if self.boxes != "auto":
            relative = self.boxes == "relative"
        elif relative is None:
            relative = bool(boxes.max(initial=0) <= 1 + 1e-3)
        width, height = (1.0, 1.0) if relative else foreign.size or _size(image)
        sides = np.array([width, height, width, height])
        beyond = np.maximum(-boxes, boxes - sides)
        if (beyond > (1e-3 if relative else OUTSIDE)).any():
            row = int(np.flatnonzero((beyond > (1e-3 if relative else OUTSIDE)).any(1))[0])
            raise DamagedRegionsError(
                f"a box outside of the image: {boxes[row].round(4).tolist()}, but the image is {width:g} x {height:g}"
            )
        inside = np.clip(boxes / sides, 0, 1).astype(np.float32)
        try:
            check_boxes({"features": foreign.arrays["features"], "boxes": inside})
        except ValueError as error:
            raise DamagedRegionsError(f"invalid boxes: {error}") from error
        return inside


def ids_of(sample: Sample) -> dict[str, list[str]]:
    """The possible ids of each image, in the order of the search, by medium; a single image has the medium "".

    Named media are matched by the names of their files (`meta.files`), else by the key with the medium's name.
    """
    meta = sample.get("meta", {})
    if "media" in sample:
        files = meta["files"] if isinstance(meta.get("files"), dict) else {}
        return {
            medium: _names(str(files.get(medium, "")), f"{sample['key']}-{medium}", f"{sample['key']}.{medium}")
            for medium in sample["media"]
        }
    ids = [str(meta[name]) for name in ("id", "image_id") if name in meta]
    return {"": list(dict.fromkeys([sample["key"], *_names(str(meta.get("image", "")), *ids)]))}


def _names(file: str, *others: str) -> list[str]:
    """The names of a file, with and without its suffix, and others; each once, none empty."""
    path = PurePosixPath(file)
    return [name for name in dict.fromkeys((path.stem, path.name, *others)) if name]


def place_of(sample: Sample, medium: str) -> str:
    """The image's description for an error."""
    return f"image {sample['key']!r}" + (f", medium {medium!r}" if medium else "")


def together(found: Mapping[str, dict[str, np.ndarray]], where: str) -> dict[str, np.ndarray]:
    """The regions of all images of a record, concatenated, with the names of their media.

    Raises:
        WorkbenchError: the images' features have different arrays or sizes.
    """
    if "" in found:
        return found[""]
    kinds = {medium: {name: value.shape[1:] for name, value in part.items()} for medium, part in found.items()}
    first, *others = kinds
    for medium in others:
        if kinds[medium] != kinds[first]:
            raise WorkbenchError(
                f"{where}: {first!r} has {kinds[first]}, {medium!r} has {kinds[medium]}; the images of "
                "a record need features of one kind"
            )
    regions = {name: np.concatenate([part[name] for part in found.values()]) for name in found[first]}
    return {**regions, "medium": np.repeat(list(found), [len(part["features"]) for part in found.values()])}


def number_of(name: str) -> int | None:
    """The number at the end of an id if it identifies an image: the whole id, or many digits."""
    digits = _NUMBER.search(name)
    return int(digits[1]) if digits and (digits[1] == name or len(digits[1]) >= LONG) else None


def find_regions(files: tuple[RegionFiles, ...]) -> FeatureIndex:
    """List the images of all files. Of an image that occurs several times, the first features are used; duplicates are
    logged."""
    places: dict[str, tuple[int, Any]] = {}
    numbers: dict[int, str | None] = {}
    again: list[str] = []
    for number, file in enumerate(files):
        for name, place in file.places():
            if name in places:
                again.append(name)
                continue
            places[name] = (number, place)
            ending = number_of(name)
            if ending is not None:
                numbers[ending] = None if ending in numbers else name
    if again:
        log.warning(
            "features of %s images occur more than once (%s); using the first of each",
            f"{len(set(again)):,}",
            f"{again[0]}, ..." if len(again) > 1 else again[0],
        )
    return FeatureIndex(files, places, numbers)


def _size(image: bytes | None) -> tuple[float, float]:
    """Width and height of an image."""
    if image is None:
        raise DamagedRegionsError("boxes are in pixels, but the image has no size")
    try:
        width, height = open_image(image).size
    except FAILURES as error:
        raise DamagedRegionsError("boxes are in pixels, but the image has no size") from error
    return float(width), float(height)
