"""Captions as a table with a header: Flickr8k's and Flickr30k's `image,caption`, open_clip's `filepath title`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.url_list import column
from pipelines.readers.reader import Malformed, Match, Peek
from pipelines.readers.table_rows import SUFFIXES, Separator, header_of, rows_of_table
from pipelines.sources.files import files
from workbench.core.options.bounds import Name

IMAGE = ("image", "image_name", "image_path", "filepath", "filename", "file_name", "path")
CAPTION = ("caption", "captions", "title", "comment", "text", "sentence", "raw")


@dataclass(frozen=True)
class CaptionsTable(ImageReader):
    """Each line has one caption. The captions of an image are gathered, in the order of the file.

    The columns are found by their usual names, or named by options. Others go to `meta` (of an image's first line), so
    a column `split` serves `--own-split`. The separator is the most frequent one in the first line.
    `quoted` says whether cells may be quoted (by default where the separator is a comma or a semicolon).
    """

    suffixes: ClassVar[tuple[str, ...]] = (*SUFFIXES, ".txt")

    image_column: Name | None = None
    caption_column: Name | None = None
    separator: Separator | None = None
    quoted: bool | None = None

    @classmethod
    def detect(cls, source: Peek) -> Match:
        columns = header_of(source.head[0]) if source.head else set()
        return cls.likely(source, bool(columns & set(IMAGE)) and bool(columns & set(CAPTION)))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for path in files(paths, self.suffixes):
            for number, row in rows_of_table(path, malformed, self.separator, self.quoted):
                where = f"{path.name}:{number}"
                image = row.pop(column(list(row), IMAGE, self.image_column, "image_column", where))
                caption = row.pop(column(list(row), CAPTION, self.caption_column, "caption_column", where))
                fields, _ = gathered.setdefault(image.strip(), ({"captions": [], "meta": dict(row)}, where))
                fields["captions"].append(caption.strip())
        for name, (fields, where) in gathered.items():
            yield name, fields, where
