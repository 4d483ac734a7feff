"""What the triple formats share: triples gathered by their head, with the texts of entities and relations.

A knowledge graph is read once and held as three integer arrays (12 bytes a triple) and the names; a record is an
entity of the graph with the triples that it is the head of. An entity that is only a tail has an empty list, and so has
one that no triple names but the texts describe: it may be asked for (the entities that only the test triples have).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipelines.readers.reader import Drop, RawReader, Record
from pipelines.readers.triples.texts import TextRows, Texts, rows_of_files
from pipelines.sources.files import files, record_key
from workbench.errors import WorkbenchError
from workbench.options.bounds import Location
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)

Triple = tuple[str, str, str]
DESCRIPTIONS = ("extract", "description", "gloss")
"""The fields of a row that describe an entity, the longest text first."""


class Names:
    """Strings numbered in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self.number.setdefault(name, len(self.number))


@dataclass(frozen=True)
class GraphReader(RawReader):
    """The options name files with texts: JSON lines with the field `id`, or one JSON object by id.

    `entities`: label, aliases, and description, extract or gloss. `types`: the list of types of each entity.
    `relations` and `type_names`: labels. `described: false` leaves out the entities that no triple names.
    """

    kind: ClassVar[str] = "triples"

    entities: list[Location] = field(default_factory=list)
    relations: list[Location] = field(default_factory=list)
    types: list[Location] = field(default_factory=list)
    type_names: list[Location] = field(default_factory=list)
    described: bool = True

    def triples(self, paths: Sequence[Path]) -> Iterator[Triple]:
        """All triples (head id, relation id, tail id), in the order of the input."""
        raise NotImplementedError(f"{type(self).__name__} must define triples")

    def texts(self, paths: Sequence[Path]) -> Texts:
        """The texts from the files that the options name."""
        named = ([*self.entities, *self.types], self.relations, self.type_names)
        return Texts(*(TextRows(rows_of_files(paths)) for paths in named))

    def text_files(self, paths: Sequence[Path]) -> list[Path]:
        """The files that `texts` reads."""
        return [Path(name) for name in (*self.entities, *self.relations, *self.types, *self.type_names)]

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        missing = [path for path in self.text_files(paths) if not path.is_file()]
        if missing:
            raise WorkbenchError(f"there is no file {missing[0]} with texts of the graph")
        return [*files(paths, self.suffixes), *self.text_files(paths)]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        names, relations, columns = Names(), Names(), (array("q"), array("q"), array("q"))
        for head, relation, tail in self.triples(paths):
            for column, number in zip(columns, (names[head], relations[relation], names[tail]), strict=True):
                column.append(number)
        if not columns[0]:
            raise WorkbenchError(f"no triple in {', '.join(map(str, paths))}")
        h, r, t = (np.frombuffer(column, np.int64) for column in columns)
        kept = distinct(h, r, t)
        if len(kept) < len(h):
            log.info("%d of %d triples are repeated; each is stored once", len(h) - len(kept), len(h))
        h, r, t = h[kept], r[kept], t[kept]
        order = np.argsort(h, kind="stable")
        starts = np.searchsorted(h[order], np.arange(len(names.number) + 1))
        ids, relation_ids, texts = list(names.number), list(relations.number), self.texts(paths)
        for number, entity in enumerate(ids):
            own = order[starts[number] : starts[number + 1]]
            facts = [(relation_ids[r[i]], ids[t[i]]) for i in own]
            yield _record(entity, facts, texts, paths)
        yield from self._of_no_triple(names.number.keys() | relations.number.keys(), texts, paths)

    def sample(self, record: Record) -> Sample | Drop:
        return record.data if isinstance(record.data, Drop) else dict(record.data)

    def _of_no_triple(self, seen: set[str], texts: Texts, paths: Sequence[Path]) -> Iterator[Record]:
        """The other entities that have a label or a description; types alone may be those of another graph's."""
        for entity in texts.entities:
            if entity in seen:
                continue
            seen.add(entity)
            if any(texts.entities[entity].get(name) for name in ("label", *DESCRIPTIONS)):
                record = _record(entity, (), texts, paths)
                yield record if self.described else record._replace(data=Drop("described, but in no triple"))


def distinct(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The places of the first occurrence of every triple, ascending."""
    order = np.lexsort((t, r, h))
    first = np.ones(len(h), np.bool_)
    same = (np.diff(h[order]) == 0) & (np.diff(r[order]) == 0) & (np.diff(t[order]) == 0)
    first[1:] = ~same
    return np.sort(order[first])


def _record(entity: str, facts: Sequence[tuple[str, str]], texts: Texts, paths: Sequence[Path]) -> Record:
    row = texts.entities[entity]
    types = [str(name) for name in row.get("types", [])]
    meta: dict[str, Any] = {"source": ", ".join(path.name for path in paths)}
    if types and texts.types:
        meta["type_labels"] = [texts.types.label(name) for name in types]
    triples = [
        {
            "relation": relation,
            "relation_text": texts.relations.label(relation),
            "tail": tail,
            "tail_text": texts.entities.label(tail),
        }
        for relation, tail in facts
    ]
    sample: Sample = {
        "key": record_key(entity),
        "id": entity,
        "label": str(row.get("label") or entity),
        "aliases": [str(alias) for alias in row.get("aliases", [])],
        "description": str(next(filter(None, map(row.get, DESCRIPTIONS)), "")),
        "types": types,
        "triples": triples,
        "meta": meta,
    }
    return Record(sample, 100 * (1 + len(triples)) + len(sample["description"]), f"{paths[0].name}:{entity}")
