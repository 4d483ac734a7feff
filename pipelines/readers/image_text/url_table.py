"""A list of image URLs as a table with a header, CSV or TSV: img2dataset's `url,caption`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.image_text.url_list import CAPTION, URL, UrlList, UrlRow, column, row_of
from pipelines.readers.reader import Malformed, Peek
from pipelines.readers.table_rows import SUFFIXES, header_of, rows_of_table
from pipelines.sources.files import files
from workbench.core.options.bounds import Name


@dataclass(frozen=True)
class UrlTable(UrlList):
    """The columns are found by their usual names, or named by options; others go to `meta`. `quoted` says whether cells
    may be quoted (by default if the separator is a comma or a semicolon)."""

    suffixes: ClassVar[tuple[str, ...]] = (*SUFFIXES, ".txt")

    url_column: Name | None = None
    caption_column: Name | None = None
    quoted: bool | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        columns = header_of(source.head[0]) if source.head else set()
        return bool(columns & set(URL)) and bool(columns & set(CAPTION))

    def listed(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[UrlRow]:
        for path in files(paths, self.suffixes):
            for number, row in rows_of_table(path, malformed, quoted=self.quoted):
                where = f"{path.name}:{number}"
                url = column(list(row), URL, self.url_column, "url_column", where)
                caption = column(list(row), CAPTION, self.caption_column, "caption_column", where)
                with malformed:
                    yield row_of(path.name, number, row, url, caption)
