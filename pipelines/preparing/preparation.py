"""What came of a preparation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.corpora.manifest import Manifest
from workbench.corpora.writer import NOT_FINITE


@dataclass(frozen=True)
class Preparation:
    """What a preparation did. `manifests` and `folders` have one entry per part (`""` is the corpus itself).

    `dropped` counts by "Stage: reason"; `read` is the number of raw records; `seconds` is the time of this call and
    `skipped` the number of shards that were there already.
    """

    manifests: dict[str, Manifest]
    folders: dict[str, Path]
    dropped: dict[str, int]
    seconds: float
    skipped: int = 0

    @property
    def passed_over(self) -> dict[str, tuple[int, list[str]]]:
        """The files in the inputs' folders that were not read: by kind how many, and the first ones' names."""
        left = self.manifests[""].provenance.get("passed_over", {})
        return {what: (told["files"], told["first"]) for what, told in left.items()}

    @property
    def read(self) -> int:
        left_out = sum(count for reason, count in self.dropped.items() if reason != NOT_FINITE)
        return sum(m.records for m in self.manifests.values()) + left_out

    @property
    def rate(self) -> float:
        """Raw records per second, of this call."""
        return self.read / max(self.seconds, 1e-9)
