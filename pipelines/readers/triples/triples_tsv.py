"""Triples as lines `head<tab>relation<tab>tail` (pykeen's, WN18RR's and FB15k's layout)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import MalformedError, Peek
from pipelines.readers.triples.freebase import looks_freebase
from pipelines.readers.triples.graph import Found, GraphReader, Triple, parsed
from pipelines.sources.triple_lines import what_is_wrong


def tab_separated(paths: Sequence[Path], suffixes: tuple[str, ...]) -> Iterator[Found]:
    """The triples of files with three columns."""
    return parsed(paths, suffixes, three_names)


def three_names(line: str, where: str) -> Triple:
    """A line's head, relation and tail.

    Raises:
        MalformedError: another number of columns, or an empty one.
    """
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != 3 or not all(columns):
        raise MalformedError("expected head<tab>relation<tab>tail", where, what_is_wrong(columns))
    return columns[0], columns[1], columns[2]


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
        return source.suffix in cls.suffixes and three_columns(source) and not looks_freebase(source)

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return tab_separated(paths, self.suffixes)
