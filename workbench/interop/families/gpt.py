"""Hugging Face GPT (Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018).

Post-norm, with no other norms; words are predicted by their table. Their `gelu` is the approximation by tanh, and the
feed-forward blocks are always four times as wide. The visibility is no option of the network: the recipe's builder has
`visibility: causal`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.gpt_config import block, config_of, text_stream
from workbench.interop.gpt_names import blocks
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, Rule, SameTensor
from workbench.models.feed_forward import Activation
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


class Gpt(CheckpointFamily):
    """Hugging Face GPT (openai-gpt): a `text` stream with positions, `self` layers with norms behind; clm."""

    prefix = "transformer."

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "openai-gpt"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        plain = FamilyConfig(
            {key: value for key, value in config.items() if key != "n_inner"}
        )  # which theirs does not read
        return NetworkSpec({"text": text_stream(config)}, [block(plain, "afn", "gelu", ACTIVATIONS)])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"clm": token_head(config, "clm")}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        return [
            SameTensor("transformer.tokens_embed.weight", "embeddings.text.token.weight"),
            SameTensor("transformer.positions_embed.weight", "embeddings.text.position.weight"),
            Copy("lm_head.weight", "transformer.tokens_embed.weight", own="clm.output.weight"),
            Buffer("transformer.position_ids"),
            *blocks(config["n_layer"]),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {
            **config_of(described, len(described.layers)),
            "architectures": ["OpenAIGPTLMHeadModel" if "clm" in described.heads else "OpenAIGPTModel"],
            "model_type": "openai-gpt",
            "afn": THEIR_ACTIVATIONS.get(described.layers[0]["activation"], "gelu"),
        }
