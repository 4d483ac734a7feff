"""RoBERTa: positions that begin at row 2."""

from __future__ import annotations

from tests.contracts.cases import BERT_SIZES, FamilyCase

CONFIG = {
    **BERT_SIZES,
    "layer_norm_eps": 1e-5,
    "type_vocab_size": 1,
    "model_type": "roberta",
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("hf/roberta",),
    rows={"roberta.embeddings.position_embeddings.weight": slice(2, None)},
)
