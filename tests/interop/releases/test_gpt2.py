"""GPT-2: linear maps the other way round, query, key and value in one."""

from __future__ import annotations

from tests.contracts.cases import ReleaseCase
from tests.interop.releases import test_gpt as gpt

CONFIG = {**gpt.CONFIG, "model_type": "gpt2"}
CASES = {
    "": ReleaseCase(config=CONFIG),
    "inner": ReleaseCase(config={**CONFIG, "n_inner": 24, "activation_function": "relu", "scale_attn_weights": False}),
}
