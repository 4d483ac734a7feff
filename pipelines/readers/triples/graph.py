"""What the triple formats share: triples gathered by their head, with the texts of entities and relations.

A knowledge graph is read once and held as three integer arrays (12 bytes a triple) and the names; a record is an
entity of the graph with the triples that it is the head of. An entity that is only a tail has an empty list.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pipelines.readers.reader import Reader, Record, parse_row
from pipelines.sources.files import files, lines, plain_suffix, record_key
from pipelines.sources.json_file import read_json
from workbench.errors import WorkbenchError
from workbench.options.bounds import Location
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)

Triple = tuple[str, str, str]


class Names:
    """Strings numbered in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self.number.setdefault(name, len(self.number))


class Texts(NamedTuple):
    """What is known of entities, relations and types, by id; each row may have label, description, aliases, types."""

    entities: dict[str, dict[str, Any]]
    relations: dict[str, dict[str, Any]]
    types: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class GraphReader(Reader):
    """The options name files with texts: JSON lines with the field `id`, or one JSON object by id.

    `entities`: label, aliases, and description, extract or gloss. `types`: the list of types of each entity.
    `relations` and `type_names`: labels.
    """

    kind: ClassVar[str] = "triples"

    entities: list[Location] = field(default_factory=list)
    relations: list[Location] = field(default_factory=list)
    types: list[Location] = field(default_factory=list)
    type_names: list[Location] = field(default_factory=list)

    def triples(self, paths: Sequence[Path]) -> Iterator[Triple]:
        """All triples (head id, relation id, tail id), in the order of the input."""
        raise NotImplementedError(f"{type(self).__name__} must define triples")

    def texts(self, paths: Sequence[Path]) -> Texts:
        """The texts from the files that the options name."""
        entities = _merged([*self.entities, *self.types])
        return Texts(entities, _merged(self.relations), _merged(self.type_names))

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

    def sample(self, record: Record) -> Sample:
        return dict(record.data)


def distinct(h: np.ndarray, r: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The places of the first occurrence of every triple, ascending."""
    order = np.lexsort((t, r, h))
    first = np.ones(len(h), np.bool_)
    same = (np.diff(h[order]) == 0) & (np.diff(r[order]) == 0) & (np.diff(t[order]) == 0)
    first[1:] = ~same
    return np.sort(order[first])


def read_texts(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by id, from JSON lines with `id`, or from one JSON object `{id: row}`; a row may be a label or type list."""
    if plain_suffix(path) == ".json":
        rows = read_json(path)
        return {name: _row(value, f"{path.name}:{name}") for name, value in rows.items()}
    found: dict[str, dict[str, Any]] = {}
    for number, line in lines(path):
        if line.strip():
            row = parse_row(line, f"{path.name}:{number}")
            if "id" not in row:
                raise WorkbenchError(f"{path}:{number}: a row needs the field 'id'; it has {', '.join(row)}")
            found.setdefault(str(row["id"]), {}).update(row)
    return found


def _row(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"label": value}
    if isinstance(value, list):
        return {"types": value}
    if isinstance(value, dict):
        return value
    raise WorkbenchError(f"{where}: expected an object, a label or a list of types; found {type(value).__name__}")


def _merged(names: Sequence[str | Path]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        for identifier, row in read_texts(Path(name)).items():
            rows.setdefault(identifier, {}).update(row)
    return rows


def label_of(rows: Mapping[str, Mapping[str, Any]], identifier: str) -> str:
    """The label of an id; the id itself where there is none."""
    return str(rows.get(identifier, {}).get("label") or identifier)


def _record(entity: str, facts: Sequence[tuple[str, str]], texts: Texts, paths: Sequence[Path]) -> Record:
    row = texts.entities.get(entity, {})
    types = [str(name) for name in row.get("types", [])]
    meta: dict[str, Any] = {"source": ", ".join(path.name for path in paths)}
    if types and texts.types:
        meta["type_labels"] = [label_of(texts.types, name) for name in types]
    triples = [
        {
            "relation": relation,
            "relation_text": label_of(texts.relations, relation),
            "tail": tail,
            "tail_text": label_of(texts.entities, tail),
        }
        for relation, tail in facts
    ]
    sample: Sample = {
        "key": record_key(entity),
        "id": entity,
        "label": label_of(texts.entities, entity),
        "aliases": [str(alias) for alias in row.get("aliases", [])],
        "description": str(row.get("extract") or row.get("description") or row.get("gloss") or ""),
        "types": types,
        "triples": triples,
        "meta": meta,
    }
    return Record(sample, 100 * (1 + len(triples)) + len(sample["description"]), f"{paths[0].name}:{entity}")
