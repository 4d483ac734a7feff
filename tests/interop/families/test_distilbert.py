"""DistilBERT: BERT without segments, under names of its own."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 12,
    "model_type": "distilbert",
}
CASE = FamilyCase(config=CONFIG)
