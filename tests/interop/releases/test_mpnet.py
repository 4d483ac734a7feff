"""MPNet: one table of distances for the stack."""

from __future__ import annotations

from tests.contracts.cases import ReleaseCase

CONFIG = {
    "model_type": "mpnet",
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-5,
}
CASE = ReleaseCase(
    config=CONFIG,
    golden=("hf/mpnet",),
    rows={"mpnet.embeddings.position_embeddings.weight": slice(2, None)},
)
