"""ViT of timm."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CASE = FamilyCase(
    config={
        "model_args": {
            "img_size": 8,
            "patch_size": 4,
            "embed_dim": 16,
            "depth": 2,
            "num_heads": 2,
            "mlp_ratio": 1.5,
        }
    },
    excused={"text": "it reads no text"},
)
