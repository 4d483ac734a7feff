"""The builder `document`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase()
