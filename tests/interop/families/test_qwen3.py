"""Qwen3: norms of queries and keys. `test_llama` compares logits and tokens."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama

CONFIG = {**llama.CONFIG, "model_type": "qwen3"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "tied": FamilyCase(config={**CONFIG, "head_dim": 8, "tie_word_embeddings": True}),
}
