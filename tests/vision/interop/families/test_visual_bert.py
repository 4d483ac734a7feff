"""VisualBERT: one norm for words and regions; labels the other way round."""

from __future__ import annotations

from tests.contracts.cases import BERT_SIZES, FamilyCase

CONFIG = {
    **BERT_SIZES,
    "visual_embedding_dim": 10,
    "model_type": "visual_bert",
}
SUMMED = "visual_bert.embeddings.visual_"
"""Of the tables whose rows are summed no row comes back by itself."""
CASE = FamilyCase(
    config=CONFIG,
    golden=("hf/visual_bert",),
    rows={f"{SUMMED}{name}_embeddings.weight": slice(0, 0) for name in ("token_type", "position")},
)
