"""The builder `packed`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase

SHARED = {"company": "documents share a sequence"}
CASES = {
    "": BuilderCase(excused=SHARED),
    "full": BuilderCase({"full": True, "visibility": "causal"}, SHARED),
    "across": BuilderCase({"full": True, "across": True, "begin": None, "visibility": "causal"}, SHARED),
}
