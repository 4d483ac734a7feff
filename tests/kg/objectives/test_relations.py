"""The objective `kg.relations`; that it reads markers is tested in `test_reading.py`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

OPTIONS = {"classes": ["0", "1", "2"], "negative": "0", "label": "label", "dropout": 0.0}
REASONS = {"originals": "no row is changed"}
CASES = {
    "": ObjectiveCase(OPTIONS, REASONS, sequence={"builder": "sentence_pair"}),
    "first": ObjectiveCase({**OPTIONS, "read": "first"}, REASONS, sequence={"builder": "sentence_pair"}),
}
