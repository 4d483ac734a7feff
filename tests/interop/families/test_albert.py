"""ALBERT: one layer many times, or one for each group."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "embedding_size": 8,
    "hidden_act": "gelu_new",
    "model_type": "albert",
    "max_position_embeddings": 12,
}
CASES = {
    "": FamilyCase(config=CONFIG, golden=("hf/albert",)),
    "groups": FamilyCase(config={**CONFIG, "num_hidden_groups": 2}),
}
