"""The objective `kg.relations`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

CASE = ObjectiveCase(
    {"classes": ["0", "1", "2"], "negative": "0", "label": "label", "dropout": 0.0},
    {"originals": "no row is changed"},
    sequence={"builder": "sentence_pair"},
)
