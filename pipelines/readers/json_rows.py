"""Base class of files of rows: JSON lines, a JSON list, or tables of Parquet and Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.readers.reader import Record
from pipelines.sources import columnar
from pipelines.sources.files import files, lines, stem
from pipelines.sources.json_files import elements, is_list

log = logging.getLogger(__name__)
SUFFIXES = (".jsonl", ".json", ".ndjson", *columnar.SUFFIXES)


def row_records(paths: Sequence[Path]) -> Iterator[Record]:
    """One record for each line that is not blank, element of a list or row of a table: (stem of the file, number, row).

    `parse_row` parses the row. Columns with bytes (images) are skipped and logged.
    """
    for path in files(paths, SUFFIXES):
        in_table = columnar.is_columnar(path)
        name = columnar.called(path) if in_table else stem(path)
        for number, row, size in _table_rows(path) if in_table else _rows(path):
            yield Record((name, number, row), size, f"{path.name}:{number}")


def _rows(path: Path) -> Iterator[tuple[int, bytes, int]]:
    listed = enumerate((row.encode() for row in elements(path)), 1) if is_list(path) else lines(path)
    return ((number, row, len(row)) for number, row in listed if row.strip())


def _table_rows(path: Path) -> Iterator[tuple[int, dict[str, Any], int]]:
    reported: set[str] = set()
    for number, row, size in columnar.rows(path):
        binary = {name for name, value in row.items() if columnar.holds_bytes(value)}
        if not binary <= reported:
            reported |= binary
            log.warning("%s: the columns %s hold bytes; they are ignored", path.name, ", ".join(sorted(binary)))
        yield number, {name: value for name, value in row.items() if name not in binary}, max(1, size)
