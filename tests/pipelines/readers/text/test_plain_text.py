"""The text format `plain-text`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(text=lines(lambda i: f"First line {i}\nsecond line\n"), file="story.txt")
