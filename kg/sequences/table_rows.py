"""Which row of a table of entity vectors is whose."""

from __future__ import annotations

from collections.abc import Mapping


class TableRows:
    """The row of each entity: of a file of vectors (`kg.vectors.vectors`), or as given.

    Another process opens the file again instead of getting its ids sent.
    """

    def __init__(self, table: str | Mapping[str, int]) -> None:
        self.table = table
        self._rows = _read(table) if isinstance(table, str) else table

    def get(self, entity: str) -> int | None:
        """The row of an entity; None where it has no vector."""
        return self._rows.get(entity)

    def __reduce__(self) -> tuple[type[TableRows], tuple[str | Mapping[str, int]]]:
        return TableRows, (self.table,)


def _read(path: str) -> Mapping[str, int]:
    from kg.vectors.vectors import load_vectors

    return load_vectors(path).rows
