"""The keys of GPT's configuration file, which GPT-2 has too, and our options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import unknown
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.models.feed_forward import Activation
from workbench.recipe.spec import Spec


def norm_eps(config: FamilyConfig) -> float:
    return float(config.get("layer_norm_epsilon", 1e-5))


def text_stream(config: FamilyConfig) -> Spec:
    """The embedding of words and positions."""
    return {
        "embedding": "token",
        "hidden_size": config["n_embd"],
        "vocab_size": config["vocab_size"],
        "max_positions": config["n_positions"],
        "token_types": 0,
        "norm": None,
        "dropout": config.get("embd_pdrop", 0.1),
    }


def block(config: FamilyConfig, key: str, default: str, activations: Mapping[str, Activation]) -> Spec:
    """A layer, whose activation the configuration has under `key`.

    Raises:
        WorkbenchError: an activation that is not supported.
    """
    name = config.get(key, default)
    if name not in activations:
        raise unknown("activation", name, activations, f"{key} of the configuration")
    return {
        "layer": "self",
        "stream": "text",
        "num_heads": config["n_head"],
        "intermediate_size": config.get("n_inner") or 4 * config["n_embd"],
        "activation": activations[name],
        "norm_eps": norm_eps(config),
        "dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
        "repeat": config["n_layer"],
    }


def config_of(described: ModelDescription, layers: int) -> dict[str, Any]:
    """The keys of the configuration for an embedding and a number of layers of ours."""
    text, first = described.streams["text"], described.layers[0]
    return {
        "vocab_size": text["vocab_size"],
        "n_positions": text["max_positions"],
        "n_embd": text["hidden_size"],
        "n_layer": layers,
        "n_head": first["num_heads"],
        "embd_pdrop": text["dropout"],
        "resid_pdrop": first["dropout"],
        "attn_pdrop": first["attention_dropout"],
        "layer_norm_epsilon": first["norm_eps"],
        "bos_token_id": None,
        "eos_token_id": None,
    }
