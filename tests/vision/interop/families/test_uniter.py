"""UNITER: the type of regions in the table of segments."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "img_dim": 10,
    "max_position_embeddings": 12,
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("uniter",),
    rows={"uniter.img_embeddings.mask_embedding.weight": 1},
)
