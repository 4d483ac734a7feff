"""Qwen3-MoE: experts. `test_llama` compares logits and tokens."""

from __future__ import annotations

import pytest

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import differences, model_description

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CONFIG = {**llama.CONFIG, "model_type": "qwen3_moe", **EXPERTS}
CASES = {
    "": FamilyCase(config=CONFIG),
    "windows": FamilyCase(config={**CONFIG, **llama.WINDOW}),
    "normalised": FamilyCase(config={**CONFIG, "norm_topk_prob": True, "head_dim": 8}),
}


def test_layers_without_experts_are_refused() -> None:
    for changes in ({"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}):
        with pytest.raises(WorkbenchError, match=r"allowed: experts in every layer \(\[\], 1\)"):
            make_family("qwen3_moe").network(FamilyConfig({**CONFIG, **changes}))


def test_all_layers_have_the_window_whatever_is_said_of_single_ones() -> None:
    family = make_family("qwen3_moe")
    stated = {"layer_types": ["full_attention", "sliding_attention"], "max_window_layers": 1}
    config = FamilyConfig({**CONFIG, "num_hidden_layers": 2, "use_sliding_window": True, "sliding_window": 4, **stated})
    spec = family.network(config)
    assert [layer.get("window") for layer in spec.layers] == [3, 3, None]
    whole = family.network(FamilyConfig({**config, "use_sliding_window": False}))
    assert [layer.get("window") for layer in whole.layers] == [None] * 3
    described = model_description(spec)
    written = FamilyConfig(family.config(described))
    assert not written.keys() & stated.keys()
    assert not differences(described, model_description(family.network(written)), family.free)
    described.layers[0]["window"] = None
    back = model_description(family.network(FamilyConfig(family.config(described))))
    assert differences(described, back, family.free) == ["layer 0: window = None here, 3 there"]
