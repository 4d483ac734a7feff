"""ViT of Hugging Face."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CASE = FamilyCase(
    config={
        "model_type": "vit",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "image_size": 8,
        "patch_size": 4,
    },
    excused={"text": "it reads no text"},
)
