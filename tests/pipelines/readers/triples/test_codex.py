"""The triples format `codex`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"Q{i + 9}\tP1\tQ1"),
    file="train.txt",
    more=1,
    folder=True,
)
