"""The builder `packed`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase(excused={"company": "documents share a sequence"})
