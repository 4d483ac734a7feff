"""The text format `json-lines`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import json_lines

CASE = ReaderCase(text=json_lines(lambda i: {"text": f"text number {i} of a file"}))
