"""Triples as a table with a header, as spreadsheets write it: CSV with quoted cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import Malformed, MalformedError, Match, Peek
from pipelines.readers.table_rows import Separator, cells_by_column, header_of, table
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.triples_tsv import column_place
from pipelines.sources.files import files
from pipelines.sources.triple_lines import PLACES, what_is_wrong
from workbench.errors import WorkbenchError
from workbench.options.bounds import Name


@dataclass(frozen=True)
class TriplesCsv(GraphReader):
    """The columns are found by their usual names (head, relation, tail; subject, predicate, object; ...), or named.

    Without `header` the first three columns are head, relation and tail. Other columns are not read.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    head_column: Name | None = None
    relation_column: Name | None = None
    tail_column: Name | None = None
    header: bool = True
    separator: Separator | None = None

    @classmethod
    def detect(cls, source: Peek) -> Match:
        named = header_of(source.head[0]) if source.head and source.suffix in cls.suffixes else set()
        return cls.likely(source, len({column_place(name) for name in named} - {None}) == len(PLACES))

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        malformed = Malformed()
        for path in files(paths, self.suffixes):
            found = table(path, malformed, self.separator, header=self.header)
            if found is None:
                continue
            layout, rows = found
            chosen = self._columns(layout.columns, path.name)
            for row in rows:
                where = f"{path.name}:{row.number}"
                with malformed:
                    cells = cells_by_column(row.cells, layout.columns, where)
                    head, relation, tail = triple = [cells[name].strip() for name in chosen]
                    if wrong := what_is_wrong(triple):
                        raise MalformedError("expected head, relation and tail", where, wrong)
                    yield head, relation, tail
                while malformed:
                    yield malformed.pop(0)
            while malformed:
                yield malformed.pop(0)

    def _columns(self, columns: Sequence[str], where: str) -> list[str]:
        """
        Raises:
            WorkbenchError: a column is missing, or none has a usual name.
        """
        named = dict(zip(PLACES, (self.head_column, self.relation_column, self.tail_column), strict=True))
        if not self.header:
            named = {place: name or str(number) for number, (place, name) in enumerate(named.items())}
        chosen = []
        for place, name in named.items():
            usual = [column for column in columns if column_place(column) == place]
            found = usual if name is None else [column for column in columns if column == name]
            if not found:
                wanted = f"called {name}" if name else f"a {place}"
                raise WorkbenchError(
                    f"{where}: none of the columns {', '.join(columns)} is {wanted}. Say which it is: "
                    f"--option {place}_column=COLUMN"
                )
            chosen.append(found[0])
        return chosen
