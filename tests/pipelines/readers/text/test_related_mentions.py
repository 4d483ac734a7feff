"""The text format `related-mentions`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines


def row(i: int) -> dict[str, Any]:
    head, tail = {"name": "b", "id": "Q2", "spans": [[2]]}, {"name": "a", "id": "Q1", "spans": [[0]]}
    return {"relation": f"P{i % 2}", "tokens": ["A", "of", "B"], "head": head, "tail": tail}


CASE = ReaderCase(text=json_lines(row))
