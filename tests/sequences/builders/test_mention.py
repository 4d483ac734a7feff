"""The builder `mention`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

CASE = BuilderCase(
    {"marker": "."},
    {"special": "the markers are ordinary tokens", "small": "a mention needs a text around it"},
)
