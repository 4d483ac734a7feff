"""The objective `kg.types`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

REASONS = {"seed": "nothing is drawn", "originals": "no row is changed", "no labels": "every mention has types"}
CASES = {
    "": ObjectiveCase({"num_types": 3, "dropout": 0.0}, REASONS, labels=3, small=9),
    "markers": ObjectiveCase({"num_types": 3, "read": "markers", "dropout": 0.0}, REASONS, labels=3, small=9),
}
