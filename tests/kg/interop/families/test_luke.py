"""LUKE: the names of entities next to those of RoBERTa."""

from __future__ import annotations

from tests.contracts.cases import BERT_SIZES, FamilyCase

CONFIG = {
    **BERT_SIZES,
    "layer_norm_eps": 1e-5,
    "type_vocab_size": 1,
    "model_type": "luke",
    "max_position_embeddings": 14,
    "entity_vocab_size": 9,
    "entity_emb_size": 6,
    "use_entity_aware_attention": True,
}
CASES = {"": FamilyCase(config=CONFIG), "plain": FamilyCase(config={**CONFIG, "use_entity_aware_attention": False})}
