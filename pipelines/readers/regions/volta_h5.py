"""VOLTA's HDF5 of features (Bugliarello et al. 2021): a group for each image, named by its id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.readers.regions._h5 import H5_FAILURES, open_h5, opened, own
from pipelines.readers.regions.region_files import DamagedRegionsError, ForeignRegions, RegionFiles

SUFFIXES = (".h5", ".hdf5")
SCORED = {
    "classes": "obj_id",
    "confidence": "obj_conf",
    "attributes": "attr_id",
    "attribute_confidence": "attr_conf",
}


@dataclass(frozen=True)
class VoltaH5(RegionFiles):
    """Boxes are in pixels of an image of `img_w` x `img_h`; the detector's classes and scores are kept if present.

    Needs the package h5py.
    """

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_file() and path.suffix in SUFFIXES

    def places(self) -> Iterator[tuple[str, Any]]:
        with open_h5(self.path) as file:
            names = list(file)
        for name in names:
            yield name, name

    def read(self, place: Any) -> ForeignRegions:
        try:
            group = own(opened(self.path), place)
            found = {name: np.asarray(own(group, name)) for name in group}
            size = float(found["img_w"]), float(found["img_h"])
            arrays = {"features": found["features"]}
            arrays |= {name: found[reported].reshape(-1) for name, reported in SCORED.items() if reported in found}
            return ForeignRegions(arrays, found["boxes"], size, relative=False)
        except H5_FAILURES as error:
            raise DamagedRegionsError(f"no group of features, boxes, img_w and img_h ({error})") from error
