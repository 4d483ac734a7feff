"""The builder `sentence_pair`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase()
