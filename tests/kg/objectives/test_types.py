"""The objective `kg.types`; that it reads markers is tested in `test_reading.py`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

CASE = ObjectiveCase(
    {"num_types": 3, "dropout": 0.0},
    {"seed": "nothing is drawn", "originals": "no row is changed", "no labels": "every mention has types"},
    labels=3,
    small=9,
)
