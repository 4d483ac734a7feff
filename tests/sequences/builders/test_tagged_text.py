"""The builder `tagged_text`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase()
