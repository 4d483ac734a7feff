"""The triples format `spo`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"a{i}\tr\tb"),
    file="graph.spo",
    more=1,
)
