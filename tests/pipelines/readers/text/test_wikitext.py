"""The text format `wikitext`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(text=lines(lambda i: f" = Title {i} = \n \n An animal . \n "), file="wiki.txt")
