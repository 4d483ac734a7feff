"""Hugging Face GPT (Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018).

Norms behind each sublayer, and none elsewhere; words are predicted by their table. Their `gelu` is the approximation
by tanh, and the feed-forward blocks are always four times as wide. Who sees whom is none of the network's: the
recipe's builder says `visibility: causal`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.errors import unknown
from workbench.interop.described import Described
from workbench.interop.gpt_names import blocks
from workbench.interop.release import Config, Release
from workbench.interop.rules import Buffer, Copy, Rule, Same
from workbench.models.blocks import Activation
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.layout import Visibility

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


class Gpt(Release):
    """Hugging Face GPT (openai-gpt): a `text` stream with positions, `self` layers with norms behind; clm."""

    prefix = "transformer."

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "openai-gpt"

    def network(self, config: Config) -> NetworkSpec:
        text = {
            "embedding": "token",
            "hidden_size": config["n_embd"],
            "vocab_size": config["vocab_size"],
            "max_positions": config["n_positions"],
            "token_types": 0,
            "embedding_norm": False,
            "dropout": config.get("embd_pdrop", 0.1),
        }
        name = config.get("afn", "gelu")
        if name not in ACTIVATIONS:
            raise unknown("activation", name, ACTIVATIONS, "afn of the configuration")
        layer = {
            "layer": "self",
            "stream": "text",
            "num_heads": config["n_head"],
            "intermediate_size": 4 * config["n_embd"],
            "activation": ACTIVATIONS[name],
            "norm_eps": float(config.get("layer_norm_epsilon", 1e-5)),
            "dropout": config.get("resid_pdrop", 0.1),
            "attention_dropout": config.get("attn_pdrop", 0.1),
            "repeat": config["n_layer"],
        }
        return NetworkSpec({"text": text}, [layer])

    def heads(self, config: Config) -> dict[str, Spec]:
        return {"clm": {"objective": "clm"}}

    def rules(self, config: Config) -> list[Rule]:
        return [
            Same("transformer.tokens_embed.weight", "embeddings.text.token.weight"),
            Same("transformer.positions_embed.weight", "embeddings.text.position.weight"),
            Copy("lm_head.weight", "transformer.tokens_embed.weight"),
            Buffer("transformer.position_ids"),
            *blocks(config["n_layer"]),
        ]

    def visibility(self, config: Config) -> Visibility:
        return "causal"

    def config(self, described: Described) -> dict[str, Any]:
        text, first = described.streams["text"], described.layers[0]
        return {
            "architectures": ["OpenAIGPTLMHeadModel" if "clm" in described.heads else "OpenAIGPTModel"],
            "model_type": "openai-gpt",
            "vocab_size": text["vocab_size"],
            "n_positions": text["max_positions"],
            "n_embd": text["hidden_size"],
            "n_layer": len(described.layers),
            "n_head": first["num_heads"],
            "afn": THEIR_ACTIVATIONS.get(first["activation"], "gelu"),
            "embd_pdrop": text["dropout"],
            "resid_pdrop": first["dropout"],
            "attn_pdrop": first["attention_dropout"],
            "layer_norm_epsilon": first["norm_eps"],
        }
