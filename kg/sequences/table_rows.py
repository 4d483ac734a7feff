"""Which row of a table of entity vectors is whose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class TableRows(Mapping[str, int]):
    """The row of each entity: of a file of vectors (`kg.vectors.vectors`), or as given.

    Another process opens the file again instead of getting its ids sent.
    """

    def __init__(self, table: str | Mapping[str, int]) -> None:
        self.table = table
        self._rows = _read(table) if isinstance(table, str) else table

    def __getitem__(self, entity: str) -> int:
        return self._rows[entity]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> tuple[type[TableRows], tuple[str | Mapping[str, int]]]:
        return TableRows, (self.table,)


def _read(path: str) -> Mapping[str, int]:
    from kg.vectors.vectors import load_vectors

    return load_vectors(path).rows
