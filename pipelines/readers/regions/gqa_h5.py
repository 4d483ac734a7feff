"""GQA's own object features (Hudson and Manning 2019): `gqa_objects_info.json` next to `gqa_objects_0.h5`, 1, ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.readers.regions._h5 import H5_FAILURES, opened, own
from pipelines.readers.regions.region_files import DamagedRegionsError, ForeignRegions, RegionFiles
from pipelines.sources.json_files import read_json
from workbench.core.errors import WorkbenchError

INFO = "gqa_objects_info.json"
STATED = ("file", "idx", "objectsNum", "width", "height")


@dataclass(frozen=True)
class GqaH5(RegionFiles):
    """The info lists the file and row of each image's 100 places, and how many of them are objects.

    Boxes are in pixels of an image of `width` x `height`. Needs the package h5py.
    """

    @classmethod
    def detect(cls, path: Path) -> bool:
        return (path / INFO).is_file()

    def files(self) -> list[Path]:
        folder = Path(self.path)
        return [folder / INFO, *sorted(folder.glob("gqa_objects_*.h5"))]

    def places(self) -> Iterator[tuple[str, Any]]:
        info = Path(self.path) / INFO
        for name, reported in read_json(info).items():
            if not isinstance(reported, dict) or not all(isinstance(reported.get(key), int) for key in STATED):
                raise WorkbenchError(
                    f"{info}: image {name!r} needs the whole numbers {', '.join(STATED)}; found {reported!r}"
                )
            yield name, tuple(reported[key] for key in STATED)

    def read(self, place: Any) -> ForeignRegions:
        file, row, count, width, height = place
        try:
            stored = opened(str(Path(self.path) / f"gqa_objects_{file}.h5"))
            features, boxes = (np.asarray(own(stored, name)[row][:count]) for name in ("features", "bboxes"))
        except H5_FAILURES as error:
            raise DamagedRegionsError(
                f"no features and bboxes in row {row} of gqa_objects_{file}.h5 ({error})"
            ) from error
        return ForeignRegions({"features": features}, boxes, (float(width), float(height)), relative=False)
