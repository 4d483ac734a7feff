"""BART: an encoder and a decoder with norms behind, and positions that begin at row 2."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONFIG = {
    "model_type": "bart",
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 12,
}
POSITIONS = {f"model.{stack}.embed_positions.weight": slice(2, None) for stack in ("encoder", "decoder")}
CASE = FamilyCase(config=CONFIG, golden=("hf/bart",), unused=("final_logits_bias",), rows=POSITIONS)
