"""The areas by name."""

from __future__ import annotations

from tests.robustness.soak import fulldisk, kills, preparing, signals
from tests.robustness.soak.engine import Area

AREAS: dict[str, Area] = {
    "kills": kills.trial,
    "signals": signals.trial,
    "full-disk": fulldisk.trial,
    "preparing": preparing.trial,
}
