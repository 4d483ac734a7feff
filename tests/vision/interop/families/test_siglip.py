"""SigLIP of Hugging Face."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

BLOCK = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CASE = FamilyCase(
    config={
        "model_type": "siglip",
        "text_config": {**BLOCK, "vocab_size": 30, "max_position_embeddings": 12},
        "vision_config": {**BLOCK, "num_hidden_layers": 1, "image_size": 8, "patch_size": 4},
    }
)
