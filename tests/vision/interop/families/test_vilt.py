"""ViLT of Hugging Face: the types of the modalities in one table."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CASE = FamilyCase(
    config={
        "model_type": "vilt",
        "vocab_size": 30,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 12,
        "image_size": 8,
        "patch_size": 4,
    }
)
