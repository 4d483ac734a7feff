"""ELECTRA: a generator and a discriminator."""

from __future__ import annotations

from tests.contracts.cases import BERT_SIZES, FamilyCase

CONFIG = {
    **BERT_SIZES,
    "embedding_size": 8,
    "model_type": "electra",
}
CASE = FamilyCase(config=CONFIG, golden=("hf/electra_generator", "hf/electra_discriminator"))
