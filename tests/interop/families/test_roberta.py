"""RoBERTa: positions that begin at row 2."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "layer_norm_eps": 1e-5,
    "type_vocab_size": 1,
    "model_type": "roberta",
    "max_position_embeddings": 12,
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("hf/roberta",),
    rows={"roberta.embeddings.position_embeddings.weight": slice(2, None)},
)
