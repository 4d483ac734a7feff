"""NLVR (Suhr et al. 2017): is a sentence true of a drawing of three boxes? JSON lines, six orders of the boxes each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.nlvr2 import truth_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, Peek, parse_row, require
from pipelines.sources.files import stem


@dataclass(frozen=True)
class Nlvr(ImageReader):
    """A record for each drawing, as the official accuracy counts: `permutations` of the six orders of the boxes.

    The sentence is the caption, `labels.label` 1 if it is true. Drawings are named split-identifier-order.png in
    numbered folders; the split is the file's name (dev.json). Drawings that were presented together go to the same
    split.
    """

    apart: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    permutations: Annotated[int, Ge(1), Le(6)] = 6

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return {"identifier", "sentence", "structured_rep"} <= source.row.keys()

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                split, identifier = stem(Path(record.data[0])), require(row, "identifier", str, record.where)
                meta = {"id": identifier, "document": f"{split}-{identifier.partition('-')[0]}"}
                sentence = require(row, "sentence", str, record.where)
                fields = {"captions": [sentence], **truth_of(row, record.where), "meta": meta}
                for order in range(self.permutations):
                    key = f"{split}-{identifier}-{order}"
                    place = f"{row['directory']}/{key}.png" if "directory" in row else f"{key}.png"
                    yield place, {**fields, "key": key}, record.where
