"""ELECTRA: a generator and a discriminator."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "embedding_size": 8,
    "model_type": "electra",
    "max_position_embeddings": 12,
}
CASE = FamilyCase(config=CONFIG, golden=("hf/electra_generator", "hf/electra_discriminator"))
