"""The triples format `ntriples`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"<http://x.org/a{i}> <http://x.org/r> <http://x.org/b> ."),
    file="graph.nt",
    more=1,
)
