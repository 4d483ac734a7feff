"""Captions as JSON lines: `{image, captions: [...]}`, `{file_name, text}` (imagefolder), images in a folder or tar.

With `boxes`, each caption has the box that it refers to: [x1, y1, x2, y2] in 0..1, or [].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.captions_table import CAPTION, IMAGE
from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, parse_row, require
from workbench.core.options.bounds import Name
from workbench.corpora.schema.field_values import boxes

SAID = ("captions", *CAPTION)


@dataclass(frozen=True)
class CaptionsJsonl(ImageReader):
    """The captions of an image are gathered from all its rows (in memory; the images are not).

    The fields are found by their usual names, or named by options. Others go to the sample's `meta`. A table of Parquet
    or Arrow next to its images is read, too.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    image_field: Name | None = None
    captions_field: Name | None = None

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, _usual(source.row, IMAGE) is not None and _usual(source.row, SAID) is not None)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image = self.image_field or _usual(row, IMAGE) or IMAGE[0]
                said = self.captions_field or _usual(row, SAID) or SAID[0]
                name = require(row, image, str, record.where)
                captions = _captions(row, said, record.where)
                placed = _boxes(row, captions, record.where)
                fields, _ = gathered.setdefault(name, ({"captions": [], "caption_boxes": [], "meta": {}}, record.where))
                fields["captions"] += captions
                fields["caption_boxes"] += placed
                own = {image, said, "boxes"}
                fields["meta"].update({f: value for f, value in row.items() if f not in own})
        for name, (fields, where) in gathered.items():
            if not any(fields["caption_boxes"]):
                del fields["caption_boxes"]
            yield name, fields, where


def _usual(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of these names that is a column with a text, or a list of texts."""
    return next((name for name in names if isinstance(row.get(name), str | list)), None)


def _captions(row: dict[str, Any], field: str, where: str) -> list[str]:
    found = require(row, field, (str, list), where)
    captions = [found] if isinstance(found, str) else found
    if not all(isinstance(caption, str) for caption in captions):
        raise MalformedError(f"field {field!r} must be a string or a list of strings", where)
    return captions


def _boxes(row: dict[str, Any], captions: list[str], where: str) -> list[Any]:
    """A box for each caption; none if the row has no boxes."""
    found = require(row, "boxes", list, where) if "boxes" in row else [[]] * len(captions)
    wrong = boxes(found)
    if wrong or len(found) != len(captions):
        message = wrong or f"{len(found)} boxes for {len(captions)} captions"
        raise MalformedError(
            "field 'boxes' must have [x1, y1, x2, y2] in 0..1, or [], for each caption", where, message
        )
    return found
