"""Files of JSON rows, whatever these say: a line for each, or all in one list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.readers.reader import Record
from pipelines.sources.files import files, lines, stem
from pipelines.sources.json_list import elements, is_list

SUFFIXES = (".jsonl", ".json", ".ndjson")


def row_records(paths: Sequence[Path]) -> Iterator[Record]:
    """One record per line that is not blank, or per element of a list: (file's stem, its number, undecoded row)."""
    for path in files(paths, SUFFIXES):
        for number, row in _rows(path):
            yield Record((stem(path), number, row), len(row), f"{path.name}:{number}")


def _rows(path: Path) -> Iterator[tuple[int, bytes]]:
    if is_list(path):
        return enumerate((row.encode() for row in elements(path)), 1)
    return ((number, line) for number, line in lines(path) if line.strip())
