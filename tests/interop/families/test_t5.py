"""T5: tied tables of words, one table of distances for a stack."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "model_type": "t5",
    "vocab_size": 140,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
V1_1 = {**CONFIG, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
CASES = {
    "": FamilyCase(config=CONFIG, golden=("hf/t5",)),
    "v1.1": FamilyCase(config=V1_1, golden=("hf/t5_v1_1",)),
}
