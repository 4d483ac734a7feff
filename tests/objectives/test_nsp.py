"""The objective `nsp`; see also `test_pairs.py`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

UNCHANGED = {"originals": "no row is changed"}
CASES = {
    "": ObjectiveCase({}, UNCHANGED, sequence={"builder": "sentence_pair"}, small=0),
    "of three": ObjectiveCase(
        {"random": 1 / 3, "previous": 1 / 3}, UNCHANGED, sequence={"builder": "sentence_pair"}, small=0
    ),
}
