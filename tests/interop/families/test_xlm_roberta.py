"""XLM-RoBERTa: RoBERTa's tensors under another name of the architecture."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_roberta

CASE = FamilyCase(config={**test_roberta.CONFIG, "model_type": "xlm-roberta"}, rows=test_roberta.CASE.rows)
