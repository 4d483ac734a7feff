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
    "query",  # the entity of a question with the relation behind it (SimKGC)
    "passage",  # the entity that answers it
    "self",  # the question's own entity, read as an answer
]
CAST = "cast"


@dataclass(frozen=True)
class CastMember:
    """A description to be read: of an entity, of a relation, or of an entity with a relation behind it.

    Attributes:
        inverse: whether the relation leads to the entity, and not from it.
        stream: that reads it.
    """

    role: Role
    entity: str | None = None
    relation: str | None = None
    inverse: bool = False
    stream: str = "text"
