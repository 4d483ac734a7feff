"""K-BERT: segments that begin at row 1."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "hidden_size": 16,
    "vocab_size": 30,
    "max_position": 12,
    "segment_vocab": 3,
    "heads_num": 2,
    "feedforward_size": 24,
    "layers_num": 2,
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("kbert/encoder",),
    unused=("output_layer_2",),
    rows={"embedding.segment_embedding.weight": slice(1, None)},
)
