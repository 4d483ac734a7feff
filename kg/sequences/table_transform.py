"""Base of the transforms that add rows of a table of entity vectors.

Which row of a table of entity vectors is whose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kg.graph.shuffle import FALSE_FACTS
from kg.sequences.linked_mentions import hidden
from kg.sequences.linked_transform import LinkedTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import CountOrZero, Location, Name, Share
from workbench.sequences.entities import Entities
from workbench.sequences.sequence import Sequence, Span

WITHOUT_VECTOR = "entities without a vector"


class TableTransform(LinkedTransform, ABC):
    """Base of such a transform.

    Args:
        table: the file of entity vectors (`kg.vectors.vectors`).
        min_score: of links with a linker's score, those above it count.
        control: the recipe's; under `no-kg` nothing is `linked`, under `mentions-only` every entity that has a vector
            has that of the table's first one.
    """

    controls: tuple[str, ...] = ("no-kg", "mentions-only")
    unaffected_by: tuple[str, ...] = (*FALSE_FACTS, "random-entities")  # which entities the table has stays as it is
    scored: ClassVar[str] = "mentions"
    """The name of a score's kind in counts."""

    def __init__(
        self, table: Location | Mapping[Name, CountOrZero], min_score: Share, control: Name | None = None
    ) -> None:
        super().__init__()
        self.rows = TableRows(table)
        self.min_score = min_score
        self.linked = control != "no-kg"
        self.alike = control == "mentions-only"

    @abstractmethod
    def add(self, sequence: Sequence) -> None:
        """Bring the entities into a sequence, in place; nothing here is drawn."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The same sequences, each changed by `add`."""
        for sequence in sequences:
            self.add(sequence)
        return sequences

    def known_entities(self) -> Entities:
        return self.rows.entities()

    def row_of(self, span: Span, sequence: Sequence) -> int | None:
        """The table's row of a linked entity; None where the link is left out, which is counted."""
        row = self.rows.get(span.entity)
        if hidden(span, sequence):
            self.dropped["mentions to be masked"] += 1
        elif span.score <= self.min_score:
            self.dropped[f"{self.scored} below min_score"] += 1
        elif row is None:
            self.dropped[WITHOUT_VECTOR] += 1
        else:
            return 0 if self.alike else row
        return None


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
