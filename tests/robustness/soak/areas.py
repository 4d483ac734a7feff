"""The areas by name."""

from __future__ import annotations

from tests.robustness.soak import accounting, fulldisk, kills, mutations, preparing, signals, values
from tests.robustness.soak.engine import Area

AREAS: dict[str, Area] = {
    "kills": kills.trial,
    "signals": signals.trial,
    "full-disk": fulldisk.trial,
    "preparing": preparing.trial,
    "mutations": mutations.trial,
    "values": values.trial,
    "accounting": accounting.trial,
}
