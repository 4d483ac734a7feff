"""Mixtral: experts. `test_llama` compares logits and tokens."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama

CONFIG = {**llama.CONFIG, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
CASES = {
    "": FamilyCase(config=CONFIG),
    "window": FamilyCase(config={**CONFIG, "sliding_window": 4, "num_experts_per_tok": 1}),
}
