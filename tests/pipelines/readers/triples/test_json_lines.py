"""The triples format `json-lines`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines


def row(i: int) -> dict[str, Any]:
    return {"id": f"Q{i}", "label": "one", "triples": [{"relation": "P1", "tail": "Q1"}]}


CASE = ReaderCase(text=json_lines(row))
