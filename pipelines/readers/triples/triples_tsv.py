"""Triples as lines `head<tab>relation<tab>tail` (pykeen's, WN18RR's and FB15k's layout)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import MalformedError, Peek
from pipelines.readers.triples.graph import GraphReader, Triple
from pipelines.sources.files import decode, files, lines


def tab_separated(paths: Sequence[Path], suffixes: tuple[str, ...]) -> Iterator[Triple]:
    """The triples of files with three columns.

    Raises:
        MalformedError: a line with another number of columns, or with an empty one.
    """
    for path in files(paths, suffixes):
        for number, line in lines(path):
            if not line.strip():
                continue
            where = f"{path.name}:{number}"
            columns = [column.strip() for column in decode(line, where).split("\t")]
            if len(columns) != 3 or not all(columns):
                raise MalformedError("expected head<tab>relation<tab>tail", where, f"found {len(columns)} columns")
            yield columns[0], columns[1], columns[2]


def three_columns(source: Peek) -> bool:
    """Whether the first lines have three tab-separated columns."""
    first = [line for line in source.head[:5] if line.strip()]
    return bool(first) and all(line.count("\t") == 2 for line in first)


@dataclass(frozen=True)
class TriplesTsv(GraphReader):
    """One or several files; a folder stands for all its .tsv and .txt files."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".txt")

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.suffix in cls.suffixes and three_columns(source)

    def triples(self, paths: Sequence[Path]) -> Iterator[Triple]:
        return tab_separated(paths, self.suffixes)
