"""Files that are made from raw data once, for `prepare` to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RawFiles:
    """Files written from the raw `data` into a `folder`, where they aren't there yet; each method returns its path."""

    data: Path
    folder: Path

    def _written(self, name: str, write: Callable[[Path], None]) -> Path:
        """Writers put the file itself last, so that one that is there is whole."""
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write(path)
        return path
