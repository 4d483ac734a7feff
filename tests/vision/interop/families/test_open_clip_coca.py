"""CoCa of open_clip."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONTEXT = {"context_length": 12, "vocab_size": 30, "width": 16, "heads": 2, "layers": 2}
VISION = {"image_size": 8, "patch_size": 4, "width": 24, "layers": 1, "head_width": 8}
CASE = FamilyCase(
    config={
        "model_cfg": {
            "embed_dim": 16,
            "vision_cfg": {**VISION, "attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": 3},
            "text_cfg": {**CONTEXT, "embed_cls": True},
            "multimodal_cfg": CONTEXT,
        }
    }
)
