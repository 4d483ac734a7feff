"""GPT-2: linear maps the other way round, query, key and value in one."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_gpt as gpt

CONFIG = {**gpt.CONFIG, "model_type": "gpt2"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "inner": FamilyCase(config={**CONFIG, "n_inner": 24, "activation_function": "relu", "scale_attn_weights": False}),
}
