"""The text format `table`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(text=lines(lambda i: f"{i % 2}\tsentence number {i}", "label\ttext_a\n"), file="train.tsv")
