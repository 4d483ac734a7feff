"""Base class and records of files of rows: JSON lines, a JSON list, or tables of Parquet and Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.readers.reader import RawReader, Record, RecordPlace
from pipelines.sources import columnar
from pipelines.sources.files import files, placed_lines, stem
from pipelines.sources.json_files import elements, is_list

log = logging.getLogger(__name__)
SUFFIXES = (".jsonl", ".json", ".ndjson", *columnar.SUFFIXES)


class RowReader(RawReader):
    """A format whose records are rows as they are."""

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        return row_records(paths)

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        return _rows_from(place.path, place.offset, place.number)


def row_records(paths: Sequence[Path]) -> Iterator[Record]:
    """One record for each line that is not blank, element of a list or row of a table: (stem of the file, number, row).

    `parse_row` parses the row. Columns with bytes (images) are skipped and logged.
    """
    for path in files(paths, SUFFIXES):
        yield from _rows_from(path)


def _rows_from(path: Path, offset: int | None = None, number: int = 1) -> Iterator[Record]:
    """The records of one file.

    Args:
        offset: of the first byte of a line, or the row of a table, from 0; by default the whole file is read.
        number: of the line or row there.
    """
    in_table = columnar.is_columnar(path)
    name = columnar.called(path) if in_table else stem(path)
    for count, row, size, at in _table_rows(path, offset or 0) if in_table else _rows(path, offset, number):
        place = None if at is None else RecordPlace(path, at, count)
        yield Record((name, count, row), size, f"{path.name}:{count}", place)


def _rows(path: Path, offset: int | None, number: int) -> Iterator[tuple[int, bytes, int, int | None]]:
    if offset is None and is_list(path):
        listed = enumerate((row.encode() for row in elements(path)), 1)
        return ((count, row, len(row), None) for count, row in listed if row.strip())
    return ((count, row, len(row), at) for count, row, at in placed_lines(path, offset, number) if row.strip())


def _table_rows(path: Path, start: int) -> Iterator[tuple[int, dict[str, Any], int, int | None]]:
    warned: set[str] = set()
    seekable = columnar.is_seekable(path)
    for number, row, size in columnar.rows(path, start):
        binary = {name for name, value in row.items() if columnar.holds_bytes(value)}
        if not binary <= warned:
            warned |= binary
            log.warning("%s: the columns %s hold bytes; they are ignored", path.name, ", ".join(sorted(binary)))
        kept = {name: value for name, value in row.items() if name not in binary}
        yield number, kept, max(1, size), number - 1 if seekable else None
