"""Which row of a table of entity vectors is whose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.errors import WorkbenchError
from workbench.sequences.entities import Entities


class TableRows(Mapping[str, int]):
    """The row of each entity: of a file of vectors (`kg.vectors.vectors`), or as given.

    Another process opens the file again instead of getting its ids sent.
    """

    def __init__(self, table: str | Mapping[str, int]) -> None:
        self.table = table
        self._rows, self._identity = _read(table) if isinstance(table, str) else (table, "")

    def __getitem__(self, entity: str) -> int:
        return self._rows[entity]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def entities(self) -> Entities:
        """All of them, by row."""
        if isinstance(self.table, str):
            from kg.vectors.vectors import load_vectors

            found = load_vectors(self.table)
            return Entities(self.table, found.ids, found.space)
        return Entities("the table that is given", sorted(self.table, key=self.table.__getitem__))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.table, self._identity)


def _reopen(table: str | Mapping[str, int], identity: str) -> TableRows:
    """In another process.

    Raises:
        WorkbenchError: other vectors lie there by now.
    """
    rows = TableRows(table)
    if rows._identity != identity:
        raise WorkbenchError(f"the vectors {table} were replaced while they were in use; put them back, or start again")
    return rows


def _read(path: str) -> tuple[Mapping[str, int], str]:
    from kg.vectors.vectors import load_vectors

    found = load_vectors(path)
    return found.rows, found.identity
