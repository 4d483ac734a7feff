"""The builder `triple`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase(excused={"small": "triples make its sequences"})
