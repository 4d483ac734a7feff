"""Whose entities a part knows, by the file that says so: what is linked to others it passes over without a word, and
numbers that it gives to entities mean something else in another file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GRAPHS = "graphs"
"""The fact on a corpus (`Manifest.about`) that says whose its linked entities are: an `IdSpace` for each graph."""


@dataclass(frozen=True)
class IdSpace:
    """Whose ids are meant: of a `namespace` that several graphs share, or of a graph's own `entities` (a checksum)."""

    name: str
    namespace: str
    entities: str

    def same(self, other: IdSpace) -> bool:
        """Whether an id means the same entity in both."""
        return self.entities == other.entities or self.namespace == other.namespace != ""

    def __str__(self) -> str:
        return f"{self.name} (namespace {self.namespace})" if self.namespace else self.name


def noted(space: IdSpace | None) -> dict[str, str] | None:
    """A space as it is written down."""
    return None if space is None else asdict(space)


def space_of(note: Mapping[str, Any] | None) -> IdSpace | None:
    """What `noted` wrote."""
    return IdSpace(*(str(note[part]) for part in ("name", "namespace", "entities"))) if note else None


def spaces_in(about: Mapping[str, Any]) -> list[IdSpace]:
    """Whose entities are linked in a corpus; none where it does not say."""
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
