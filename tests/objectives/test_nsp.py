"""The objective `nsp`; see also `test_pairs.py`."""

from __future__ import annotations

from tests.contracts.cases import ObjectiveCase

CASE = ObjectiveCase(
    {},
    {"originals": "no row is changed"},
    sequence={"builder": "sentence_pair"},
    small=0,
)
