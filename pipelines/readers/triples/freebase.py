"""Freebase as columns `m.id<tab>relation<tab>m.id`, ids as `m.0abc` or `/m/0abc`; names are quoted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import Drop, MalformedError, Peek
from pipelines.readers.triples.graph import Found, GraphReader, parsed
from pipelines.readers.triples.texts import EntityTexts, Row, StatedTexts, TextRows, rows_of_files
from workbench.core.options.bounds import Name

ROW = re.compile(r"/?[mg][./]\w+\t[^\t]+\t[^\t]+")
QUOTED = re.compile(r'"(?P<text>.*)"(?:@(?P<language>[A-Za-z0-9-]+))?')
TEXTS = {
    "type.object.name": "label",
    "common.topic.alias": "aliases",
    "common.topic.description": "description",
}
"""Properties of Freebase that name a topic."""
TYPE = "type.object.type"


def looks_freebase(source: Peek) -> bool:
    """Whether the first lines are about topics of Freebase."""
    first = [line for line in source.head[:5] if line.strip()]
    return bool(first) and all(ROW.fullmatch(line.strip()) for line in first)


@dataclass(frozen=True)
class Freebase(GraphReader):
    """Names, aliases and descriptions in `language` are texts; other quoted values are dropped and counted.

    All ids become `m.0abc`, and relations `location.country.capital` (FB15k-237 has `/location/country/capital`), also
    in files with texts (FB15k's mid2name has `/m/0abc`). `type.object.type` lists an entity's types.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".txt")

    language: Name = "en"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.suffix in cls.suffixes and looks_freebase(source)

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return parsed(paths, self.suffixes, self._row)

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, Row]]) -> EntityTexts:
        named = ((topic(name), row) for name, row in rows_of_files([*self.entities, *self.types]))
        entities = TextRows(named, first=said)
        relations = TextRows((dotted(name), row) for name, row in rows_of_files(self.relations))
        return EntityTexts(entities, relations, TextRows((dotted(n), row) for n, row in rows_of_files(self.type_names)))

    def _row(self, line: str, where: str) -> Found:
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 3 or not all(columns):
            raise MalformedError("expected m.id<tab>relation<tab>m.id", where, f"found {len(columns)} columns")
        head, relation, tail = columns[0], dotted(columns[1]), columns[2]
        quoted = QUOTED.fullmatch(tail)
        if quoted is None and relation == TYPE:
            return StatedTexts(topic(head), "types", dotted(topic(tail)))
        if quoted is None:
            return topic(head), relation, topic(tail)
        field = TEXTS.get(relation)
        if field is None:
            return Drop("a value that is no topic")
        if quoted["language"] not in (None, self.language):
            return Drop("a text in another language")
        return StatedTexts(topic(head), field, quoted["text"])


def topic(name: str) -> str:
    """`m.0abc` of `/m/0abc`; any other id as it is."""
    return f"{name[1]}.{name[3:]}" if name.startswith(("/m/", "/g/")) else name


def dotted(name: str) -> str:
    """`location.country.capital` of `/location/country/capital`; any other name as it is."""
    return name.strip("/").replace("/", ".") if name.startswith("/") else name
