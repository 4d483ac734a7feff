"""Lists of image URLs as parquet: LAION's `URL`, `TEXT`, DataComp's `url`, `text`, with metadata of each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.image_text.url_list import CAPTION, URL, UrlList, UrlRow, column, row_of
from pipelines.readers.reader import Malformed, Match, Peek
from pipelines.sources.columnar import SUFFIXES, rows
from pipelines.sources.files import files
from workbench.core.options.bounds import Name


@dataclass(frozen=True)
class UrlParquet(UrlList):
    """The columns are found by their usual names, or named by options; others (similarity, NSFW, width, ...) go to
    `meta`.

    Needs the package pyarrow.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    url_column: Name | None = None
    caption_column: Name | None = None

    @classmethod
    def detect(cls, source: Peek) -> Match:
        if source.is_folder or source.suffix not in cls.suffixes:
            return Match.NO
        return Match.FALLBACK if set(URL).isdisjoint(source.row) else Match.SUFFIX

    def listed(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[UrlRow]:
        for path in files(paths, self.suffixes):
            for number, row, _ in rows(path):
                if number == 1:
                    url = column(list(row), URL, self.url_column, "url_column", path.name)
                    caption = column(list(row), CAPTION, self.caption_column, "caption_column", path.name)
                with malformed:
                    yield row_of(path.name, number, row, url, caption)
