"""The keys of BERT's configuration file, which most later checkpoints have, and our options."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import unknown
from workbench.interop.family import FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.models.feed_forward import Activation
from workbench.recipe.spec import Spec
from workbench.sequences.text_layout import Visibility

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "tanh": "tanh",
}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


def activation(config: FamilyConfig) -> Activation:
    """The activation of the feed-forward blocks.

    Raises:
        WorkbenchError: one that is not supported.
    """
    name = config.get("hidden_act", "gelu")
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS, "hidden_act of the configuration")
    return ACTIVATIONS[name]


def norm_eps(config: FamilyConfig) -> float:
    return float(config.get("layer_norm_eps", 1e-12))


def text_stream(config: FamilyConfig, **more: Any) -> Spec:
    """The embedding of words, positions and segments."""
    return {
        "embedding": "token",
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "max_positions": config.get("max_position_embeddings", 512),
        "token_types": config.get("type_vocab_size", 2),
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "norm_eps": norm_eps(config),
        **more,
    }


def block(config: FamilyConfig) -> Spec:
    """Options of a layer."""
    return {
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
        "activation": activation(config),
        "norm_eps": norm_eps(config),
    }


def word_head(config: FamilyConfig, **more: Any) -> Spec:
    """The objective of masked words, whose head has the body's activation and norm, or those stated here."""
    transform = {"activation": activation(config), "norm_eps": norm_eps(config), **more}
    return token_head(config, "mlm", transform=transform)


def config_of(text: Spec, layer: Spec) -> dict[str, Any]:
    """The keys of the configuration for an embedding and a layer of ours."""
    return {
        "vocab_size": text["vocab_size"],
        "hidden_size": text["hidden_size"],
        "max_position_embeddings": text["max_positions"],
        "type_vocab_size": text["token_types"],
        "hidden_dropout_prob": text["dropout"],
        "num_attention_heads": layer["num_heads"],
        "intermediate_size": layer["intermediate_size"],
        "attention_probs_dropout_prob": layer["attention_dropout"],
        "hidden_act": THEIR_ACTIVATIONS.get(layer["activation"], "gelu"),
        "layer_norm_eps": layer["norm_eps"],
        "initializer_range": 0.02,
        "pad_token_id": 0,
    }


def visibility(config: FamilyConfig) -> Visibility:
    """The visibility of the library's models that read `is_decoder`; others of BERT's kind ignore it."""
    return "causal" if config.get("is_decoder") else "bidirectional"


def decoding(described: ModelDescription) -> dict[str, Any]:
    """The key for a network that has only read from left to right, for the same models."""
    return {"is_decoder": True} if described.visibilities == {"causal"} else {}


def with_segments(described: ModelDescription, state: dict[str, Tensor]) -> tuple[ModelDescription, dict[str, Tensor]]:
    """A text without a table of segments, as one with a single segment whose vector is 0."""
    text = described.streams.get("text", {})
    if text.get("token_types") != 0:
        return described, state
    streams = {**described.streams, "text": {**text, "token_types": 1}}
    row = torch.zeros(1, text["embedding_size"])
    return described._replace(streams=streams), {**state, "embeddings.text.token_type.weight": row}
