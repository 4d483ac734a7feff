"""The descriptions that a sample's sequences read, and their roles in the triple.

An objective writes a cast into the samples (`CAST`) before the builder `kg.described_triple` makes a sequence of each
part; without one a triple has its head and its tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal[
    "head",
    "tail",
    "head of relation",  # the head's description with the relation's behind it (KEPLER-Cond)
    "tail of relation",
    "relation",
    "false head",
    "false tail",
    "entity",  # of no triple
]
CAST = "cast"


@dataclass(frozen=True)
class CastMember:
    """A description to be read: of an entity, of a relation, or of an entity with a relation behind it."""

    role: Role
    entity: str | None = None
    relation: str | None = None
