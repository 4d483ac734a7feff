"""Tables: a text for each line, with named columns (GLUE's and CLUE's sets, spreadsheets), as TSV or CSV."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import Drop, Malformed, MalformedError, Match, Peek, RawReader, Record
from pipelines.readers.row_fields import (
    KNOWN,
    Source,
    check_sources,
    columns_of,
    fill,
    no_consensus,
    usual_sources,
    word_places,
)
from pipelines.readers.table_rows import SUFFIXES, Separator, cells_by_column, table
from pipelines.sources.files import files, record_key, stem
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table(RawReader):
    """`fields` maps one or several columns to fields of a sample (docs/samples.md).

    `fields={text: premise, second: hypothesis, labels: [gold_label], choices: [ending0, ending1], tags: label}`; text,
    second text and label are found by their usual names. `tags` are one for each word between spaces. The remaining
    columns go to the sample's `meta`; the command logs the columns of text and label that it found. Without `header`
    columns are named 0, 1, ... By default the separator is a comma or semicolon in a .csv, by its first line, else a
    tab. `quoted` says whether cells may be quoted; by default only tables with commas and semicolons have quoted cells.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    fields: dict[Name, Source] = field(default_factory=dict)
    header: bool = True
    separator: Separator | None = None
    quoted: bool | None = None
    id_field: Name | None = None

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, is_table(source))

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        warned: set[tuple[str, ...]] = set()
        malformed = Malformed()
        for path in files(paths, self.suffixes):
            found = table(path, malformed, self.separator, self.quoted, header=self.header)
            if found is None:
                continue
            columns, rows = found[0].columns, found[1]
            sources = self.sources(columns, path.name)
            if columns not in warned:
                warned.add(columns)
                self._report(columns, sources, path.name)
            for row in rows:
                yield from malformed.records()
                yield Record((stem(path), row.number, row.cells, columns), row.size, f"{path.name}:{row.number}")
            yield from malformed.records()

    def sample(self, record: Record) -> Sample | Drop:
        name, number, cells, columns = record.data
        row = cells_by_column(cells, columns, record.where)
        sources = self.sources(columns, record.where)
        if no_consensus(row, sources):
            return Drop("no gold label")
        sample = fill(row, sources, record.where)
        self._refuse_tags(sample, record.where)
        used = columns_of(sources) | {self.id_field}
        key = record_key(str(row[self.id_field]) if self.id_field in row else f"{name}-{number}")
        meta = {"source": record.where.rpartition(":")[0], "line": number}
        return {"key": key, **sample, "meta": {**meta, **{c: v for c, v in row.items() if c not in used}}}

    def sources(self, columns: Sequence[str], where: str) -> dict[str, Source]:
        """The columns of the fields.

        Raises:
            WorkbenchError: no column is the text.
        """
        sources = usual_sources(columns, self.fields)
        if "text" not in sources and "translations" not in sources:
            raise WorkbenchError(
                f"{where} is a table with the columns {', '.join(columns)}; none of them is named "
                f"{' or '.join(KNOWN['text'])}. Name the text with --option 'fields={{text: COLUMN}}' (and "
                "header=false where the first line is data), or read it as prose with --format plain-text"
            )
        return sources

    def _report(self, columns: Sequence[str], sources: dict[str, Source], where: str) -> None:
        """Log the mapping if names decided it and columns are left, so that a wrong or missing one is noticed."""
        left = [column for column in columns if column not in columns_of(sources) | {self.id_field}]
        if left and not {"text", "labels"} <= self.fields.keys():
            read = ", ".join(f"{name}: {_spelt(source)}" for name, source in sources.items() if source is not None)
            log.info("%s is read with fields={%s}; meta gets %s", where, read, ", ".join(left))

    def _refuse_tags(self, sample: Sample, where: str) -> None:
        """Refuse a column `label`, found by its name, that may hold a tag for each word."""
        if "labels" in self.fields or not isinstance(sample.get("text"), str):
            return
        words = len(word_places(sample["text"]))
        for column, label in sample.get("labels", {}).items():
            if words > 1 and isinstance(label, str) and len(label.split()) == words:
                raise MalformedError(
                    f"the column {column!r} has as many words as the text",
                    where,
                    f"tags? --option 'fields={{tags: {column}}}'; a label? --option 'fields={{labels: [{column}]}}'",
                )


def _spelt(source: Source) -> str:
    """The mapping in the syntax of --option fields."""
    return source if isinstance(source, str) else str(source).replace("'", "")


def is_table(source: Peek) -> bool:
    """Whether the suffix is that of a table, or all first lines have the same number of tabs."""
    filled = [line for line in source.head if line.strip()]
    tabs = {line.strip("\n").count("\t") for line in filled}
    return not source.is_folder and (
        source.suffix in SUFFIXES or (len(filled) > 1 and len(tabs) == 1 and 0 not in tabs)
    )
