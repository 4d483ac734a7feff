"""Facts as JSON lines: an entity per line, `{id, label, triples: [{relation, tail, qualifiers: [...]}], ...}`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import Peek, Record, parse_row, require
from pipelines.readers.row_fields import Source, check_sources, columns_of, fill, with_own
from pipelines.sources.files import record_key
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class TripleJsonLines(RowReader):
    """The fields of triples samples (docs/samples.md) are copied, the others go to `meta`.

    `fields` maps fields of other names: `fields={id: qid, description: extract, types: null}`; null leaves a field to
    `meta`.
    """

    kind: ClassVar[str] = "triples"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    fields: dict[Name, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return isinstance(source.row.get("triples"), list)

    def sample(self, record: Record) -> Sample:
        row = parse_row(record.data[2], record.where)
        sources = with_own(row, self.kind, self.fields)
        taken = fill(row, sources, record.where)
        for name in ("id", "triples"):
            require(taken, name, (str, list), record.where)
        used = taken.keys() | columns_of(self.fields) | {"meta", "key"}
        nested = row["meta"] if isinstance(row.get("meta"), dict) else {}
        meta = {"source": record.where, **nested, **{n: v for n, v in row.items() if n not in used}}
        return {"key": record_key(taken["id"]), **taken, "meta": meta}
