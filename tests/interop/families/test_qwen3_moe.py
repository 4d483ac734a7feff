"""Qwen3-MoE: experts. `test_llama` compares logits and tokens."""

from __future__ import annotations

import pytest

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CONFIG = {**llama.CONFIG, "model_type": "qwen3_moe", **EXPERTS}
CASES = {
    "": FamilyCase(config=CONFIG),
    "normalised": FamilyCase(config={**CONFIG, "norm_topk_prob": True, "head_dim": 8}),
}


def test_layers_without_experts_are_refused() -> None:
    for changes in ({"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}):
        with pytest.raises(WorkbenchError, match=r"allowed: experts in every layer \(\[\], 1\)"):
            make_family("qwen3_moe").network(FamilyConfig({**CONFIG, **changes}))
