"""Files of JSON lines, whatever their rows say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.readers.reader import Record
from pipelines.sources.files import files, lines, stem

SUFFIXES = (".jsonl", ".json", ".ndjson")


def row_records(paths: Sequence[Path]) -> Iterator[Record]:
    """One record per line that is not blank: (file's stem, line number, undecoded line)."""
    for path in files(paths, SUFFIXES):
        for number, line in lines(path):
            if line.strip():
                yield Record((stem(path), number, line), len(line), f"{path.name}:{number}")
