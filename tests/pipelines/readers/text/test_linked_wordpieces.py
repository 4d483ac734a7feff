"""The text format `linked-wordpieces`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines


def row(i: int) -> dict[str, Any]:
    return {"doc_id": i, "sentences": [{"tokens": ["ana", "##rch", "is", "made"], "links": [[0, 2, "Q1"]]}]}


CASE = ReaderCase(text=json_lines(row))
