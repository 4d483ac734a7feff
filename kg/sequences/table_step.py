"""What the steps share that bring in rows of a table of entity vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kg.graph.shuffling import FALSE_FACTS
from kg.sequences.linked_step import LinkedStep
from kg.sequences.mentions import hidden
from kg.sequences.table_rows import TableRows
from workbench.options.bounds import CountOrZero, Location, Name, Share
from workbench.sequences.entities import Entities
from workbench.sequences.sequence import Sequence, Span

WITHOUT_VECTOR = "entities without a vector"


class TableStep(LinkedStep):
    """Base of such a step.

    Args:
        table: the file of entity vectors (`kg.vectors.vectors`).
        min_score: of links with a linker's score, those above it count.
        control: the recipe's; under `no-kg` nothing is `linked`, under `mentions-only` every entity that has a vector
            has that of the table's first one.
    """

    controls: tuple[str, ...] = ("no-kg", "mentions-only")
    unaffected_by: tuple[str, ...] = (*FALSE_FACTS, "random-entities")  # which entities the table has stays as it is
    scored: ClassVar[str] = "mentions"
    """What a score is of, as it is counted."""

    def __init__(
        self, table: Location | Mapping[Name, CountOrZero], min_score: Share, control: Name | None = None
    ) -> None:
        super().__init__()
        self.rows = TableRows(table)
        self.min_score = min_score
        self.linked = control != "no-kg"
        self.alike = control == "mentions-only"

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
