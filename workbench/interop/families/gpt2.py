"""Hugging Face GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).

Pre-norm, with one norm after the last layer; words are predicted by their table. The visibility is no option of the
network: the recipe's builder has `visibility: causal`, and a run with another visibility cannot be exported as GPT-2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.bert_config import ACTIVATIONS, THEIR_ACTIVATIONS
from workbench.interop.bert_names import both
from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.gpt_config import block, config_of, norm_eps, text_stream
from workbench.interop.gpt_names import blocks
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

OTHERS = ("add_cross_attention", "scale_attn_by_inverse_layer_idx")
"""Options of a configuration that are not supported."""


class Gpt2(CheckpointFamily):
    """Hugging Face GPT-2: a `text` stream with positions, `self` layers with norms in front, a last `norm`; clm."""

    prefix = "transformer."

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "gpt2"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        for key in OTHERS:
            if config.get(key):
                raise WorkbenchError(f"{key} = true is not supported: no layer here has such attention")
        layer = {
            **block(config, "activation_function", "gelu_new", ACTIVATIONS),
            "norm_place": "pre",
            "scale": None if config.get("scale_attn_weights", True) else 1.0,
        }
        last = {"layer": "norm", "stream": "text", "norm_eps": norm_eps(config)}
        return NetworkSpec({"text": text_stream(config)}, [layer, last])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"clm": token_head(config, "clm")}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        return [
            SameTensor("transformer.wte.weight", "embeddings.text.token.weight"),
            SameTensor("transformer.wpe.weight", "embeddings.text.position.weight"),
            Copy("lm_head.weight", "transformer.wte.weight", own="clm.output.weight"),
            *blocks(config["n_layer"]),
            *both("transformer.ln_f", f"layers.{config['n_layer']}.norm"),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def config(self, described: ModelDescription) -> dict[str, Any]:
        first = described.layers[0]
        return {
            **config_of(described, len(described.layers) - 1),
            "architectures": ["GPT2LMHeadModel" if "clm" in described.heads else "GPT2Model"],
            "model_type": "gpt2",
            "n_inner": first["intermediate_size"],
            "activation_function": THEIR_ACTIVATIONS.get(first["activation"], "gelu_new"),
            "scale_attn_weights": first["scale"] is None,
        }
