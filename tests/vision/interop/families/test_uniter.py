"""UNITER: the type of regions in the table of segments."""

from __future__ import annotations

from tests.contracts.cases import BERT_SIZES, FamilyCase

CONFIG = {
    **BERT_SIZES,
    "img_dim": 10,
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("uniter",),
    rows={"uniter.img_embeddings.mask_embedding.weight": 1},
)
