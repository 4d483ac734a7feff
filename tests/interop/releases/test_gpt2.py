"""GPT-2: linear maps the other way round, query, key and value in one."""

from __future__ import annotations

from tests.contracts.cases import ReleaseCase

CONFIG = {
    "model_type": "gpt2",
    "vocab_size": 30,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 12,
}
CASES = {
    "": ReleaseCase(config=CONFIG),
    "inner": ReleaseCase(config={**CONFIG, "n_inner": 24, "activation_function": "relu", "scale_attn_weights": False}),
}
