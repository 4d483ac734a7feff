"""JSON lines: one document per line, its text in one field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pipelines.files import files, lines, record_key, stem
from pipelines.readers.reader import MalformedError, Peek, Reader, Record, parse_row, require
from workbench.sequences import Sample

SUFFIXES = (".jsonl", ".json", ".ndjson")


def row_records(paths: Sequence[Path]) -> Iterator[Record]:
    """One record per line that is not blank: (file's stem, line number, undecoded line)."""
    for path in files(paths, SUFFIXES):
        for number, line in lines(path):
            if line.strip():
                yield Record((stem(path), number, line), len(line), f"{path.name}:{number}")


@dataclass(frozen=True)
class JsonLines(Reader):
    """`text_field` holds the text (a string), `id_field` the document's name where there is one.

    The fields in `meta_fields` go to the sample's `meta`: by default where the text comes from and what may be done
    with it.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    text_field: str = "text"
    id_field: str = "id"
    meta_fields: list[str] = field(default_factory=lambda: ["title", "url", "licence", "license", "language", "date"])

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
        document = row.get(self.id_field)
        key = record_key(f"{name}-{number}" if document is None else str(document))
        meta = {"source": record.where.rpartition(":")[0], "line": number}
        return {"key": key, "text": text, "meta": meta | {f: row[f] for f in self.meta_fields if f in row}}
