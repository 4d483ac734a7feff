"""ERNIE-THU: the names of entities next to those of BERT."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "layer_types": ["sim", "mix", "norm"],
    "ent_hidden_size": 6,
    "ent_num_attention_heads": 2,
    "max_position_embeddings": 12,
}
CASE = FamilyCase(config=CONFIG, golden=("ernie_thu/pretraining",))
