"""Triples as a table with a header: CSV as spreadsheets write it, JSON rows, Parquet or Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES as ROWS
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, parse_row
from pipelines.readers.table_rows import Separator, cells_by_column, header_of, table
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.triples_tsv import column_place
from pipelines.sources.files import files, plain_suffix
from pipelines.sources.triple_lines import PLACES, what_is_wrong
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name


@dataclass(frozen=True)
class TriplesCsv(GraphReader):
    """The columns are found by their usual names (head, relation, tail; subject, predicate, object; ...), or named by
    options.

    Without `header` the first three columns are head, relation and tail. Other columns are ignored.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", *ROWS)

    head_column: Name | None = None
    relation_column: Name | None = None
    tail_column: Name | None = None
    header: bool = True
    separator: Separator | None = None

    @classmethod
    def detect(cls, source: Peek) -> Match:
        named: Collection[str] = source.row
        if source.head and source.suffix == ".csv":
            named = header_of(source.head[0])
        return cls.likely(source, len({column_place(name) for name in named} - {None}) == len(PLACES))

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        malformed = Malformed()
        for path in files(paths, self.suffixes):
            columns, chosen = None, list[str]()
            for number, row in self._rows(path, malformed):
                where = f"{path.name}:{number}"
                while malformed:
                    yield malformed.pop(0)
                if columns != row.keys():
                    columns, chosen = row.keys(), self._columns(tuple(row), path.name)
                with malformed:
                    triple = [_cell(row[name], name, where) for name in chosen]
                    if wrong := what_is_wrong(triple):
                        raise MalformedError("expected head, relation and tail", where, wrong)
                    head, relation, tail = triple
                    yield head, relation, tail
                while malformed:
                    yield malformed.pop(0)
            while malformed:
                yield malformed.pop(0)

    def _rows(self, path: Path, malformed: Malformed) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number, cells by column) of the rows of a file."""
        if plain_suffix(path) in ROWS:
            for record in row_records([path]):
                with malformed:
                    yield record.data[1], parse_row(record.data[2], record.where)
            return
        found = table(path, malformed, self.separator, header=self.header)
        if found is None:
            return
        layout, rows = found
        for row in rows:
            with malformed:
                yield row.number, cells_by_column(row.cells, layout.columns, f"{path.name}:{row.number}")

    def _columns(self, columns: Sequence[str], where: str) -> list[str]:
        """
        Raises:
            WorkbenchError: a column is missing, or has no usual name.
        """
        named = dict(zip(PLACES, (self.head_column, self.relation_column, self.tail_column), strict=True))
        if not self.header and columns == tuple(map(str, range(len(columns)))):
            named = {place: name or str(number) for number, (place, name) in enumerate(named.items())}
        chosen = []
        for place, name in named.items():
            usual = [column for column in columns if column_place(column) == place]
            found = usual if name is None else [column for column in columns if column == name]
            if not found:
                wanted = f"called {name}" if name else f"a {place}"
                raise WorkbenchError(
                    f"{where}: none of the columns {', '.join(columns)} is {wanted}. Name it with "
                    f"--option {place}_column=COLUMN"
                )
            chosen.append(found[0])
        return chosen


def _cell(value: Any, name: str, where: str) -> str:
    """
    Raises:
        MalformedError: neither a text nor a number.
    """
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise MalformedError(f"the column {name!r} holds {type(value).__name__}", where, "an id is a text or a number")
    return str(value).strip()
