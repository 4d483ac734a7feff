"""Whose entities a part knows, by the file that says so: what is linked to others it passes over without a word, and
numbers that it gives to entities mean something else in another file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entities:
    """The ids of entities in the order of their rows, and the file or folder that has them."""

    place: str
    ids: Sequence[str]

    def same(self, other: Entities) -> bool:
        """Whether both have the same entities in the same order."""
        if os.path.realpath(self.place) == os.path.realpath(other.place):
            return True
        return len(self.ids) == len(other.ids) and all(a == b for a, b in zip(self.ids, other.ids, strict=True))
