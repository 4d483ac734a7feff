"""Captions as JSON lines: `{image, captions: [...]}` or `{image, caption}`, images in a folder or tar.

With `boxes`, one for each caption, it is said what each speaks of: [x1, y1, x2, y2] in 0..1, or [].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, parse_row, require
from workbench.corpora.values import boxes
from workbench.options.bounds import Name


@dataclass(frozen=True)
class CaptionsJsonl(ImageReader):
    """Rows of one image need not be neighbours: their captions are gathered (in memory; the images are not).

    Other fields go to the sample's `meta`.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    image_field: Name = "image"
    captions_field: Name = "captions"

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, "image" in source.row and bool({"captions", "caption"} & source.row.keys()))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                name = require(row, self.image_field, str, record.where)
                captions = self._captions(row, record.where)
                placed = _boxes(row, captions, record.where)
                fields, _ = gathered.setdefault(name, ({"captions": [], "caption_boxes": [], "meta": {}}, record.where))
                fields["captions"] += captions
                fields["caption_boxes"] += placed
                own = {self.image_field, self.captions_field, "captions", "caption", "boxes"}
                fields["meta"].update({f: value for f, value in row.items() if f not in own})
        for name, (fields, where) in gathered.items():
            if not any(fields["caption_boxes"]):
                del fields["caption_boxes"]
            yield name, fields, where

    def _captions(self, row: dict[str, Any], where: str) -> list[str]:
        field = self.captions_field if self.captions_field in row else "caption"
        found = require(row, field, (str, list), where)
        captions = [found] if isinstance(found, str) else found
        if not all(isinstance(caption, str) for caption in captions):
            raise MalformedError(f"field {field!r} must be a string or a list of strings", where)
        return captions


def _boxes(row: dict[str, Any], captions: list[str], where: str) -> list[Any]:
    """A box for each caption, empty ones where the row has none."""
    found = require(row, "boxes", list, where) if "boxes" in row else [[]] * len(captions)
    wrong = boxes(found)
    if wrong or len(found) != len(captions):
        told = wrong or f"{len(found)} boxes for {len(captions)} captions"
        raise MalformedError("field 'boxes' must have [x1, y1, x2, y2] in 0..1, or [], for each caption", where, told)
    return found
