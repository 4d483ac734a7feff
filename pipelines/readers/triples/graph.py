"""Base class of the triple formats: triples gathered by their head, with the texts of entities and relations.

A knowledge graph is read once and held on disk (`kg.graph.links`). A record is an entity of the graph with the triples
that have it as head. An entity that is only a tail has an empty list. So has an entity with texts but without triples,
as evaluation may use it (the entities that only the test triples have).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from kg.graph.links import TripleLinks
from kg.graph.spill import BLOCK
from pipelines.readers.reader import Drop, MalformedError, RawReader, Record, parse_text
from pipelines.readers.triples.texts import DESCRIPTIONS, EntityTexts, StatedRows, StatedTexts, TextRows, rows_of_files
from pipelines.readers.triples.texts import Row as TextRow
from pipelines.sources.files import files, lines, record_key
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location
from workbench.sequences.sequence import Sample

Triple = tuple[str, str, str]
Found = Triple | StatedTexts | Drop | MalformedError
"""The content of a row: a triple (head id, relation id, tail id), a text, or the reason why it has none."""
Row = TypeVar("Row")
OTHER_RELATION = "the text of a relation that is in no triple"
UNNAMED = "described, but in no triple"
"""The reason of entities that `described: false` drops."""


@dataclass(frozen=True)
class GraphReader(RawReader):
    """The options name files with texts: JSON lines with the field `id`, or one JSON object by id.

    `entities`: label, aliases, and description, extract or gloss. `types`: the list of types of each entity.
    `relations` and `type_names`: labels. `described: false` leaves out the entities that no triple names.

    `words` of a source says that its ids are words, so that an entity without a label is named by its id.
    """

    kind: ClassVar[str] = "triples"
    words: ClassVar[bool] = False

    entities: list[Location] = field(default_factory=list)
    relations: list[Location] = field(default_factory=list)
    types: list[Location] = field(default_factory=list)
    type_names: list[Location] = field(default_factory=list)
    described: bool = True

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        """The content of every row, in the order of the input; a `Drop` is a row that the options drop."""
        raise NotImplementedError(f"{type(self).__name__} must define triples")

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, TextRow]]) -> EntityTexts:
        """The texts next to the triples by row; texts from the files that the options name come first."""
        entities = TextRows(rows_of_files([*self.entities, *self.types]), first=said)
        return EntityTexts(entities, *(TextRows(rows_of_files(files)) for files in (self.relations, self.type_names)))

    def called(self, name: str) -> str:
        """The name of an entity or a relation without a label, from its id; empty if ids are no words."""
        return name if self.words else ""

    def text_files(self, paths: Sequence[Path]) -> list[Path]:
        """The files that `texts` reads."""
        return [Path(name) for name in (*self.entities, *self.relations, *self.types, *self.type_names)]

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        missing = [path for path in self.text_files(paths) if not path.is_file()]
        if missing:
            raise WorkbenchError(f"there is no file {missing[0]} with texts of the graph")
        return [*files(paths, self.suffixes), *self.text_files(paths)]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        links, said, dropped = TripleLinks(), StatedRows(), Counter[str]()
        for found in self.triples(paths):
            if isinstance(found, StatedTexts):
                said.add(found)
            elif isinstance(found, MalformedError):
                yield Record(found, 1, found.where)
            elif isinstance(found, Drop):
                dropped[found.reason] += found.count
            else:
                links.add(*found)
        if not links:
            raise WorkbenchError(f"no triple in {', '.join(map(str, paths))}{_reported(dropped)}")
        links.flush()
        dropped["a repeated triple"] += len(links)
        texts, ids, relation_ids = self.texts(paths, said), links.entities.names(), list(links.relations)
        dropped["a label, as a later row has another for the id"] = sum(rows.relabelled for rows in texts)
        dropped["a label, as it is empty"] = sum(rows.empty for rows in texts)
        dropped[OTHER_RELATION] = len(set(texts.relations) - set(relation_ids))
        for part in links.parts():
            dropped["a repeated triple"] -= len(part.rows)
            starts = np.searchsorted(part.rows[:, 0], np.arange(part.begin, part.end + 1)).tolist()
            for entity, own in zip(range(part.begin, part.end), pairwise(starts), strict=True):
                facts = [(relation_ids[r], ids[t]) for _, r, t in part.rows[slice(*own)].tolist()]
                yield self._record(ids[entity], facts, texts, paths)
        yield from self._of_no_triple(links, texts, paths)
        for reason, count in dropped.items():
            if count:
                yield Record(Drop(reason, count), 1, f"{paths[0].name}:{reason}")

    def sample(self, record: Record) -> Sample | Drop:
        if isinstance(record.data, MalformedError):
            raise record.data
        return record.data if isinstance(record.data, Drop) else dict(record.data)

    def _of_no_triple(self, links: TripleLinks, texts: EntityTexts, paths: Sequence[Path]) -> Iterator[Record]:
        """The other entities with a label or a description; types alone may come from another graph."""
        described = iter(texts.entities)
        while ids := list(islice(described, BLOCK)):
            seen = len(links.entities)
            for entity, number in zip(ids, links.entities.numbers(ids).tolist(), strict=True):
                if number < seen or entity in links.relations:
                    continue
                seen = number + 1  # the ids are new in the order of their numbers
                if any(texts.entities[entity].get(name) for name in ("label", *DESCRIPTIONS)):
                    record = self._record(entity, (), texts, paths)
                    yield record if self.described else record._replace(data=Drop(UNNAMED))

    def _record(
        self, entity: str, facts: Sequence[tuple[str, str]], texts: EntityTexts, paths: Sequence[Path]
    ) -> Record:
        row = texts.entities[entity]
        types = [str(name) for name in row.get("types", [])]
        meta: dict[str, Any] = {"source": ", ".join(path.name for path in paths)}
        if types and texts.types:
            meta["type_labels"] = [texts.types.label(name) for name in types]
        triples = [
            {
                "relation": relation,
                **self._relation_text(texts.relations, relation),
                "tail": tail,
                "tail_text": texts.entities.named(tail) or self.called(tail) or tail,
            }
            for relation, tail in facts
        ]
        sample: Sample = {
            "key": record_key(entity),
            "id": entity,
            "label": str(row.get("label") or "").strip() or self.called(entity) or entity,
            "aliases": [str(alias) for alias in row.get("aliases", []) if str(alias).strip()],
            "description": str(next(filter(None, map(row.get, DESCRIPTIONS)), "")),
            "types": types,
            "triples": triples,
            "meta": meta,
        }
        return Record(sample, 100 * (1 + len(triples)) + len(sample["description"]), f"{paths[0].name}:{entity}")

    def _relation_text(self, rows: TextRows, relation: str) -> dict[str, str]:
        """The name of a relation; none if it has no label and its id is no word."""
        found = rows.named(relation) or self.called(relation)
        return {"relation_text": found} if found else {}


def parsed(
    paths: Sequence[Path],
    suffixes: tuple[str, ...],
    parse: Callable[[str, str], Row],
    is_header: Callable[[Row, str], bool] | None = None,
) -> Iterator[Row | MalformedError]:
    """The results of `parse` for every line that is not blank, with its place; MalformedErrors are yielded as well.

    `is_header` says whether the first line of a file names the columns; then it is dropped.
    """
    for path in files(paths, suffixes):
        filled = ((f"{path.name}:{number}", line) for number, line in lines(path) if line.strip())
        for place, (where, line) in enumerate(filled):
            found = _parsed(line, where, parse)
            if place or is_header is None or isinstance(found, MalformedError) or not is_header(found, where):
                yield found


def _parsed(line: bytes, where: str, parse: Callable[[str, str], Row]) -> Row | MalformedError:
    try:
        return parse(parse_text(line, where), where)
    except MalformedError as error:
        return error
    except Exception as error:
        error.add_note(f"at {where}")
        raise


def _reported(dropped: Counter[str]) -> str:
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in dropped.items())
    return f" ({reasons})" if reasons else ""
