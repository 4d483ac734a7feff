"""Bottom-up attention's TSV (Anderson et al. 2018) and LXMERT's: a line for each image, its arrays in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.readers.regions.region_files import DamagedRegionsError, ForeignRegions, RegionFiles
from pipelines.sources.files import LINE_LIMIT
from workbench.core.errors import WorkbenchError

BOTTOM_UP = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = (
    *("img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf"),
    *("num_boxes", "boxes", "features"),
)
"""The columns, which the files do not name; height and width are in another order in some."""
SCORED = {
    "classes": ("objects_id", np.int64),
    "confidence": ("objects_conf", np.float32),
    "attributes": ("attrs_id", np.int64),
    "attribute_confidence": ("attrs_conf", np.float32),
}


@dataclass(frozen=True)
class BottomUpTsv(RegionFiles):
    """Boxes are in pixels of the image. Only the begin and the length of each line are held in memory."""

    @classmethod
    def detect(cls, path: Path) -> bool:
        if not path.is_file() or path.suffix != ".tsv":
            return False
        with path.open("rb") as file:
            return file.readline(LINE_LIMIT).count(b"\t") + 1 in (len(BOTTOM_UP), len(LXMERT))

    def places(self) -> Iterator[tuple[str, Any]]:
        path, offset = Path(self.path), 0
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_LIMIT + 1):
                number += 1
                if len(line) > LINE_LIMIT:
                    raise WorkbenchError(f"{path}:{number}: the line is longer than {LINE_LIMIT:,} bytes")
                if line.strip():
                    identifier = line.partition(b"\t")[0].decode("utf-8", errors="replace").strip()
                    yield identifier, (offset, len(line))
                offset += len(line)

    def read(self, place: Any) -> ForeignRegions:
        offset, length = place
        with open(self.path, "rb") as file:
            file.seek(offset)
            cells = file.read(length).rstrip(b"\r\n").split(b"\t")
        columns = {len(names): names for names in (BOTTOM_UP, LXMERT)}.get(len(cells))
        if columns is None:
            raise DamagedRegionsError(f"a line of {len(cells)} columns")
        row = dict(zip(columns, cells, strict=True))
        try:
            count = int(row["num_boxes"])
            height, width = (float(row.get(f"image_{x}") or row[f"img_{x}"]) for x in "hw")
        except ValueError as error:
            raise DamagedRegionsError(f"invalid numbers ({error})") from error
        arrays = {"features": _array(row["features"], np.float32, count)}
        for name, (column, kind) in SCORED.items():
            if column in row:
                arrays[name] = _array(row[column], kind, count).reshape(count)
        return ForeignRegions(arrays, _array(row["boxes"], np.float32, count), (width, height), relative=False)


def _array(cell: bytes, kind: type, count: int) -> np.ndarray:
    """[count, anything]."""
    try:
        return np.frombuffer(base64.b64decode(cell, validate=True), kind).reshape(count, -1)
    except (ValueError, binascii.Error) as error:
        raise DamagedRegionsError(f"an array that is not {count} rows of {np.dtype(kind)} in base64") from error
