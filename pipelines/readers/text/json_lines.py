"""JSON lines: one document per line, its text in one field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import MalformedError, Peek, Reader, Record, parse_row, require
from pipelines.sources.files import record_key
from workbench.corpora.schema import fields_of
from workbench.options.bounds import Name
from workbench.sequences.sequence import Sample

SCHEMA_FIELDS = tuple(name for name in fields_of("text") if name not in ("text", "meta"))


@dataclass(frozen=True)
class JsonLines(Reader):
    """`text_field` holds the text (a string), `id_field` (or `key`) the document's name where there is one.

    The other fields of text samples (docs/samples.md: `spans`, `mention`, `types`, `labels`, ...) are taken over; of
    what is left the fields in `meta_fields` go to the sample's `meta`, by default all.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    text_field: Name = "text"
    id_field: Name = "id"
    meta_fields: list[Name] | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        special = {"image", "sentences", "mention_span", "question", "questions"}
        return source.suffix in SUFFIXES and bool(source.row) and not special & source.row.keys()

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        return row_records(paths)

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        row = parse_row(line, record.where)
        if self.text_field not in row:
            listed = ", ".join(row) or "none"
            raise MalformedError(
                f"no field {self.text_field!r}", record.where, f"fields: {listed}; choose with --option text_field=NAME"
            )
        text = require(row, self.text_field, str, record.where)
        document = row.get(self.id_field, row.get("key"))
        key = record_key(f"{name}-{number}" if document is None else str(document))
        taken = {f: row[f] for f in SCHEMA_FIELDS if f in row}
        meta = {"source": record.where.rpartition(":")[0], "line": number, **self._meta(row)}
        return {"key": key, "text": text, **taken, "meta": meta}

    def _meta(self, row: dict[str, Any]) -> dict[str, Any]:
        own = {self.text_field, self.id_field, "key", "meta", *SCHEMA_FIELDS}
        nested = row["meta"] if isinstance(row.get("meta"), dict) else {}
        wanted = [f for f in row if f not in own] if self.meta_fields is None else self.meta_fields
        return {**nested, **{f: row[f] for f in wanted if f in row}}
