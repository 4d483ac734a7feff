"""Triples as lines `head<tab>relation<tab>tail` (pykeen's, WN18RR's and FB15k's layout), with or without a header."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import MalformedError, Match, Peek
from pipelines.readers.triples.graph import Found, GraphReader, Triple, parsed
from pipelines.sources.triple_lines import PLACES, what_is_wrong

logger = logging.getLogger(__name__)
HEADERS = {
    "head": {"head", "h", "subject", "subj", "s", "source", "src", "from", "entity1", "node1", "start"},
    "relation": {"relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "label", "relationship", "type"},
    "tail": {"tail", "t", "object", "obj", "o", "target", "dst", "to", "entity2", "node2", "end", "value"},
}
"""Usual names of the columns of triples."""


def tab_separated(paths: Sequence[Path], suffixes: tuple[str, ...]) -> Iterator[Found]:
    """The triples of files with three columns; a first line that names the columns is logged and dropped."""
    return parsed(paths, suffixes, three_names, is_header)


def is_header(triple: Triple, where: str) -> bool:
    """Whether a file's first triple is a header."""
    found = tuple(map(column_place, triple)) == PLACES
    if found:
        logger.info("%s: %s is read as a header, not as a triple", where, ", ".join(triple))
    return found


def column_place(name: str) -> str | None:
    """The place in a triple of a column with this name: head, relation or tail."""
    plain = name.strip("#:_ ").casefold().removesuffix("_id").removesuffix(" id")
    return next((place for place, names in HEADERS.items() if plain in names), None)


def three_names(line: str, where: str) -> Triple:
    """A line's head, relation and tail.

    Raises:
        MalformedError: a wrong number of columns, or an empty one.
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
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, three_columns(source))

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return tab_separated(paths, self.suffixes)
