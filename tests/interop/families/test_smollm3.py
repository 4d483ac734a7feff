"""SmolLM3: layers without positions. `test_llama` compares logits and tokens."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama

CONFIG = {**llama.CONFIG, "model_type": "smollm3"}
CASES = {"": FamilyCase(config=CONFIG), "stated": FamilyCase(config={**CONFIG, "no_rope_layers": [0, 1, 1]})}
