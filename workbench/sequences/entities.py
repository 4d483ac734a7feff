"""The graph of the entities that a component knows, identified by a file. A component ignores links to other entities;
the numbers of entities have another meaning in another file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GRAPHS = "graphs"
"""The fact on a corpus (`Manifest.about`) with the graphs of its linked entities: an `IdSpace` for each graph."""


@dataclass(frozen=True)
class IdSpace:
    """The space of entity ids: a `namespace` that several graphs share, or a graph's own `entities` (a checksum)."""

    name: str
    namespace: str
    entities: str

    def same(self, other: IdSpace) -> bool:
        """Whether an id means the same entity in both."""
        return self.entities == other.entities or self.namespace == other.namespace != ""

    def __str__(self) -> str:
        return f"{self.name} (namespace {self.namespace})" if self.namespace else self.name


def noted(space: IdSpace | None) -> dict[str, str] | None:
    """A space as plain data."""
    return None if space is None else asdict(space)


def space_of(note: Mapping[str, Any] | None) -> IdSpace | None:
    """The space from the output of `noted`."""
    return IdSpace(*(str(note[part]) for part in ("name", "namespace", "entities"))) if note else None


def spaces_in(about: Mapping[str, Any]) -> list[IdSpace]:
    """The spaces of the entities that are linked in a corpus; none where it has no record of them."""
    return [space for note in about.get(GRAPHS, ()) if (space := space_of(note)) is not None]


@dataclass(frozen=True)
class Entities:
    """The ids of entities in the order of their rows, and the file or folder that has them."""

    place: str
    ids: Sequence[str]
    space: IdSpace | None = None

    def same(self, other: Entities) -> bool:
        """Whether both have the same entities in the same order."""
        if os.path.realpath(self.place) == os.path.realpath(other.place):
            return True
        return len(self.ids) == len(other.ids) and all(a == b for a, b in zip(self.ids, other.ids, strict=True))
