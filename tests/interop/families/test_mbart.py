"""mBART: BART with norms before the sublayers, and tokens that are scaled."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_bart

CONFIG = {**test_bart.CONFIG, "model_type": "mbart"}
ABOUT = {"unused": test_bart.CASE.unused, "rows": test_bart.CASE.rows}
CASES = {
    "": FamilyCase(config=CONFIG, **ABOUT),
    "scaled": FamilyCase(config={**CONFIG, "scale_embedding": True}, **ABOUT),
}
