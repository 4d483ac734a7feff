"""Wikidata's JSON dump: an array with an entity in each line (`latest-all.json.bz2`), or only the lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from pipelines.readers.reader import Drop, MalformedError, Peek, RawReader, Record, parse_row, require
from pipelines.readers.triples.texts import Row, TextRows
from pipelines.sources.files import files, lines, record_key
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

ENTITY = re.compile(r'\s*\[?\s*\{\s*("id"\s*:\s*"\w+"\s*,\s*)?"type"\s*:\s*"(item|property|lexeme)"')
ANY_LANGUAGE = "mul"
"""The language of a label for all languages without their own."""
INSTANCE_OF = "P31"
PROPERTY = "a property, whose label names its relation"
"""Not an entity of the graph, but read for its label: no fault."""


@dataclass(frozen=True)
class WikidataJson(RawReader):
    """Items with their texts in `language` and their claims whose value is an item; P31 also lists the types.

    `rank: best` uses the preferred claims of each property, or else the normal ones (Wikidata's truthy statements),
    `rank: all` both; deprecated claims are never used. Qualifiers with items are stored with their fact. Other values
    (dates, numbers, external ids) are dropped and counted. The dump is read twice, first for the labels, which are
    stored in a temporary file (16 bytes of memory an entity).
    """

    kind: ClassVar[str] = "triples"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    language: Name = "en"
    rank: Literal["best", "all"] = "best"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.suffix in cls.suffixes and ENTITY.match(source.text) is not None

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        labels, dropped = TextRows(self._labels(paths)), Counter[str]()
        for row, where, size in self._rows(paths):
            if isinstance(row, MalformedError):
                yield Record(row, 1, where)
            elif row["type"] != "item":
                dropped[PROPERTY if row["type"] == "property" else f"a {row['type']}, no item"] += 1
            else:
                yield self._record_or_error(row, labels, dropped, where, size)
        for reason, count in dropped.items():
            yield Record(Drop(reason, count), 1, f"{paths[0].name}:{reason}")

    def sample(self, record: Record) -> Sample | Drop:
        if isinstance(record.data, MalformedError):
            raise record.data
        return record.data if isinstance(record.data, Drop) else dict(record.data)

    def _labels(self, paths: Sequence[Path]) -> Iterator[tuple[str, Row]]:
        for row, _, _ in self._rows(paths):
            if not isinstance(row, MalformedError):
                yield row["id"], {"label": self._text(row, "labels")}

    def _rows(self, paths: Sequence[Path]) -> Iterator[tuple[dict[str, Any] | MalformedError, str, int]]:
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                entity = line.strip().removesuffix(b",")
                if entity not in (b"", b"[", b"]"):
                    where = f"{path.name}:{number}"
                    yield _entity(entity, where), where, len(line)

    def _record_or_error(
        self, row: Mapping[str, Any], labels: TextRows, dropped: Counter[str], where: str, size: int
    ) -> Record:
        try:
            return self._record(row, labels, dropped, where, size)
        except (AttributeError, KeyError, TypeError) as error:  # a line of JSON in another structure
            return Record(MalformedError("no entity as Wikidata writes it", where, repr(error)), 1, where)

    def _record(self, row: Mapping[str, Any], labels: TextRows, dropped: Counter[str], where: str, size: int) -> Record:
        facts: list[dict[str, Any]] = []
        for statements in _map(row, "claims").values():
            for statement in self._taken(statements, dropped):
                fact = _fact(statement["mainsnak"], labels)
                if fact is None:
                    dropped["a claim whose value is no item"] += 1
                    continue
                reported = (_fact(snak, labels) for snak in chain(*_map(statement, "qualifiers").values()))
                qualifiers = [one for one in reported if one is not None]
                facts.append({**fact, "qualifiers": qualifiers} if qualifiers else fact)
        types = [fact for fact in facts if fact["relation"] == INSTANCE_OF]
        sample: Sample = {
            "key": record_key(row["id"]),
            "id": row["id"],
            "label": self._text(row, "labels") or row["id"],
            "aliases": [alias["value"] for alias in _map(row, "aliases").get(self.language, [])],
            "description": self._text(row, "descriptions"),
            "types": [fact["tail"] for fact in types],
            "triples": facts,
            "meta": {"source": where, "type_labels": [fact["tail_text"] for fact in types]},
        }
        return Record(sample, size, where)

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        texts = _map(row, name)
        found = _map(texts, self.language) or _map(texts, ANY_LANGUAGE)
        return str(found.get("value", ""))

    def _taken(self, statements: Sequence[dict[str, Any]], dropped: Counter[str]) -> list[dict[str, Any]]:
        """The statements of a property that count, by their rank."""
        ranks = {statement.get("rank", "normal") for statement in statements}
        best = {"preferred"} if "preferred" in ranks and self.rank == "best" else {"preferred", "normal"}
        taken = [statement for statement in statements if statement.get("rank", "normal") in best]
        if len(taken) < len(statements):
            dropped["a claim of a lower rank"] += len(statements) - len(taken)
        return taken


def _entity(line: bytes, where: str) -> dict[str, Any] | MalformedError:
    try:
        row = parse_row(line, where)
        for name in ("id", "type"):
            require(row, name, str, where)
    except MalformedError as error:
        return error
    return row


def _map(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping of the dump, which has an empty list for an empty one."""
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _fact(snak: Mapping[str, Any], labels: TextRows) -> dict[str, Any] | None:
    """Relation and tail of a snak whose value is an item."""
    value = _map(_map(snak, "datavalue"), "value")
    if value.get("entity-type") != "item":
        return None
    relation, tail = snak["property"], value.get("id") or f"Q{value['numeric-id']}"  # old dumps have only the number
    label = labels.named(relation)
    return {
        "relation": relation,
        **({"relation_text": label} if label else {}),
        "tail": tail,
        "tail_text": labels.label(tail),
    }
