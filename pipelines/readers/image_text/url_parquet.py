"""Lists of image URLs as parquet: LAION's `URL`, `TEXT`, DataComp's `url`, `text`, with what they say of each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.url_list import CAPTION, URL, Listed, UrlList, column, row_of
from pipelines.readers.reader import Malformed
from pipelines.sources.files import files
from workbench.errors import WorkbenchError
from workbench.options.bounds import Name

ROWS = 1024


@dataclass(frozen=True)
class UrlParquet(UrlList):
    """The columns are found by their usual names, or named; others (similarity, NSFW, width, ...) go to `meta`.

    Needs the package pyarrow.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    url_column: Name | None = None
    caption_column: Name | None = None

    def listed(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[Listed]:
        for path in files(paths, self.suffixes):
            number = 0
            for rows in _batches(path):
                for row in rows:
                    if not number:
                        url = column(list(row), URL, self.url_column, "url_column", path.name)
                        caption = column(list(row), CAPTION, self.caption_column, "caption_column", path.name)
                    number += 1
                    with malformed:
                        yield row_of(path.name, number, row, url, caption)


def _batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Some rows at a time.

    Raises:
        WorkbenchError: no pyarrow, or a file that is missing, damaged or cut off.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"{path.name}: parquet needs the package {error.name!r}: pip install 'pretraining-workbench[web]'"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS):
                yield batch.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise WorkbenchError(f"{path} cannot be read as parquet: {error}. Is it cut off? Fetch it again") from error
