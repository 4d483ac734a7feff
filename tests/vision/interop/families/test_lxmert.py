"""LXMERT: cross-attention whose directions share their weights."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "l_layers": 2,
    "r_layers": 1,
    "x_layers": 2,
    "visual_feat_dim": 10,
    "visual_pos_dim": 4,
    "model_type": "lxmert",
    "max_position_embeddings": 12,
}
CASE = FamilyCase(config=CONFIG, golden=("hf/lxmert",))
