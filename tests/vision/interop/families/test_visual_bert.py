"""VisualBERT: one norm for words and regions; labels the other way round."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "visual_embedding_dim": 10,
    "model_type": "visual_bert",
    "max_position_embeddings": 12,
}
SUMMED = "visual_bert.embeddings.visual_"
"""Of the tables whose rows are summed no row comes back by itself."""
CASE = FamilyCase(
    config=CONFIG,
    golden=("hf/visual_bert",),
    rows={f"{SUMMED}{name}_embeddings.weight": slice(0, 0) for name in ("token_type", "position")},
)
