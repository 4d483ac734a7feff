"""The text format `typed-mentions`."""

from __future__ import annotations

from typing import Any

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines


def row(i: int) -> dict[str, Any]:
    around = {"left_context_token": ["Said"], "right_context_token": ["."]}
    return {**around, "mention_span": f"user {i}", "y_str": ["person"]}


CASE = ReaderCase(text=json_lines(row))
