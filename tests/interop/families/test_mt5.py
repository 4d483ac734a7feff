"""mT5: T5 v1.1 under another name of the architecture."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_t5

CASE = FamilyCase(config={**test_t5.V1_1, "model_type": "mt5"})
