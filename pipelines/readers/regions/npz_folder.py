"""A folder of .npz files, one for each image: UNITER's (`features`, `norm_bb`, ...) or MCAN's (`x`, `bbox`, ...)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.readers.regions.region_files import ForeignRegions, RegionFiles, named_arrays, npz_arrays


@dataclass(frozen=True)
class NpzFolder(RegionFiles):
    """An image's id is the name of its file; subfolders are searched, too."""

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and not (path / "data.mdb").exists() and next(path.rglob("*.npz"), None) is not None

    def files(self) -> list[Path]:
        return sorted(Path(self.path).rglob("*.npz"))

    def places(self) -> Iterator[tuple[str, Any]]:
        for file in self.files():
            name = file.name.removesuffix(".npz")
            yield name.removesuffix(".jpg").removesuffix(".png"), str(file)

    def read(self, place: Any) -> ForeignRegions:
        return named_arrays(npz_arrays(Path(place)))
