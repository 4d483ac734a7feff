"""Qwen2: biases of queries, keys and values. `test_llama` compares logits and tokens."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama

CONFIG = {**llama.CONFIG, "model_type": "qwen2"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "windows": FamilyCase(config={**CONFIG, **llama.WINDOW, "max_window_layers": 1}),
}
