"""ConceptNet's assertions (Speer et al. 2017): `uri<tab>relation<tab>start<tab>end<tab>JSON with weight`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import MinLen

from pipelines.readers.reader import Drop, MalformedError, Peek, parse_row, require
from pipelines.readers.triples.graph import Found, GraphReader, parsed
from workbench.core.options.bounds import NotNegative, Word

ROW = re.compile(r"/a/[^\t]*\t/r/[^\t]+\t/[^\t]+\t[^\t]+\t\{.*")
HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Conceptnet(GraphReader):
    """Assertions between concepts of `languages` with a weight of at least `min_weight`.

    A concept is its word, `/c/en/dog`; with `senses` ConceptNet's word senses stay separate (`/c/en/dog/n`). Its label
    comes from its id ("dog"), and so does a relation's ("is a" for `/r/IsA`).
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    words: ClassVar[bool] = True

    languages: Annotated[list[Word], MinLen(1)] = field(default_factory=lambda: ["en"])
    min_weight: NotNegative = 0.0
    senses: bool = False

    @classmethod
    def detect(cls, source: Peek) -> bool:
        first = [line for line in source.head[:5] if line.strip()]
        return bool(first) and all(ROW.fullmatch(line) for line in first)

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return parsed(paths, self.suffixes, self._row)

    def called(self, name: str) -> str:
        kind, *parts = name.removeprefix("/").split("/")
        if kind == "r" and parts:
            return HUMP.sub(" ", parts[-1]).replace("_", " ").lower()
        return parts[1].replace("_", " ") if kind == "c" and len(parts) > 1 else name

    def _row(self, line: str, where: str) -> Found:
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 5 or not all(columns):
            raise MalformedError(
                "expected uri<tab>relation<tab>start<tab>end<tab>JSON", where, f"found {len(columns)} columns"
            )
        _, relation, start, end, more = columns
        if not (self._spoken(start) and self._spoken(end)):
            return Drop("an end in another language, or no concept")
        if self.min_weight and require(parse_row(more, where), "weight", (int, float), where) < self.min_weight:
            return Drop(f"a weight below {self.min_weight:g}")
        return self._concept(start), relation, self._concept(end)

    def _spoken(self, node: str) -> bool:
        parts = node.split("/")
        return len(parts) > 3 and parts[1] == "c" and parts[2] in self.languages and bool(parts[3])

    def _concept(self, node: str) -> str:
        return node if self.senses else "/".join(node.split("/")[:4])
