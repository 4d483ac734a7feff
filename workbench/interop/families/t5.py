"""Hugging Face T5 and T5 v1.1 (Raffel et al., arXiv:1910.10683): an encoder on `text`, a decoder on `target`.

Norms without mean, no biases, one table of distances for each of both stacks, scores that are not scaled. The first
version has relu, and predicts words by their table from scaled states. v1.1 has gated gelu, and predicts them by a
matrix of its own from unscaled states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import unknown
from workbench.interop.bert_names import stacked
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, Rule, SameTensor
from workbench.models.feed_forward import Activation
from workbench.recipe.spec import NetworkSpec, Spec

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}


class T5(CheckpointFamily):
    """Hugging Face T5 and T5 v1.1: `text` and `target` streams, `self` and `cross` layers; head span_corruption."""

    model_type: ClassVar[str] = "t5"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == self.model_type

    def network(self, config: FamilyConfig) -> NetworkSpec:
        eps, dropout = config.get("layer_norm_epsilon", 1e-6), config.get("dropout_rate", 0.1)
        token = {
            "embedding": "token",
            "hidden_size": config["d_model"],
            "vocab_size": config["vocab_size"],
            "max_positions": None,
            "token_types": 0,
            "norm": None,
            "dropout": dropout,
        }
        norm = {"layer": "norm", "norm": "rms", "norm_eps": eps}
        decoder = {**_block(config, eps, dropout, bidirectional=False), "repeat": _decoder_layers(config)}
        layers = [
            {**_block(config, eps, dropout), "layer": "self", "stream": "text", "repeat": config["num_layers"]},
            {**norm, "stream": "text"},
            {**decoder, "layer": "cross", "stream": "target", "to": "text", "key_norm": False},
            {**norm, "stream": "target"},
        ]
        return NetworkSpec({"text": dict(token), "target": dict(token)}, layers, tie={"target.token": "text.token"})

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"span_corruption": {"objective": "span_corruption", "head": {"tied": _scaled(config)}}}

    def sequence(self, config: FamilyConfig) -> Spec:
        return {"builder": "document", "begin": None, "end": "eos"}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        encoder, decoder = config["num_layers"], _decoder_layers(config)
        gated = _activation(config) != "relu"
        rules: list[Rule] = [SameTensor("shared.weight", "embeddings.text.token.weight")]
        for stack, count, first in (("encoder", encoder, 0), ("decoder", decoder, encoder + 1)):
            own = "attention" if stack == "encoder" else "self_attention"
            table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            rules.append(SameTensor(table, f"layers.{first}.{own}.attention.score_bias.table.weight"))
            for i in range(count):
                rules += _layer(f"{stack}.block.{i}.layer", f"layers.{first + i}", own, gated)
            rules.append(SameTensor(f"{stack}.final_layer_norm.weight", f"layers.{first + count}.norm.weight"))
            rules.append(Copy(f"{stack}.embed_tokens.weight", "shared.weight"))
        if _scaled(config):
            return [*rules, Copy("lm_head.weight", "shared.weight")]
        own = "shared.weight" if config.get("tie_word_embeddings", True) else "lm_head.weight"
        return [*rules, SameTensor(own, "span_corruption.output.weight")]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text = described.streams["text"]
        first = described.layers[0]
        heads, score_bias = first["num_heads"], first["score_bias"] or {}
        activation = {ours: theirs for theirs, ours in ACTIVATIONS.items()}.get(first["activation"], "relu")
        head = described.heads.get("span_corruption")
        return {
            "architectures": [self.model_type.upper() + ("Model" if head is None else "ForConditionalGeneration")],
            "model_type": self.model_type,
            "vocab_size": text["vocab_size"],
            "d_model": text["hidden_size"],
            "d_kv": first["inner_size"] // heads,
            "d_ff": first["intermediate_size"],
            "num_layers": sum(layer.get("stream") == "text" for layer in described.layers) - 1,
            "num_decoder_layers": sum(layer.get("stream") == "target" for layer in described.layers) - 1,
            "num_heads": heads,
            "relative_attention_num_buckets": score_bias.get("num_buckets", 32),
            "relative_attention_max_distance": score_bias.get("max_distance", 128),
            "dropout_rate": first["dropout"],
            "layer_norm_epsilon": first["norm_eps"],
            "feed_forward_proj": activation,
            "tie_word_embeddings": activation == "relu" if head is None else head["head.tied"],
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
        }

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        """The configuration; newer files of v1.1 always claim tied words: they are untied where a second matrix
        exists."""
        tied = config.get("tie_word_embeddings", True) and "lm_head.weight" not in state
        return config if _scaled(config) else FamilyConfig({**config, "tie_word_embeddings": tied})


def _activation(config: FamilyConfig) -> Activation:
    name = config.get("feed_forward_proj", "relu")
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS, "feed_forward_proj of the configuration")
    return ACTIVATIONS[name]


def _scaled(config: FamilyConfig) -> bool:
    """Whether words are predicted from scaled states, by their table; older files record only the tie."""
    return bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)))


def _decoder_layers(config: FamilyConfig) -> int:
    """As many as the encoder has, unless the configuration has a number."""
    return int(config.get("num_decoder_layers") or config["num_layers"])


def _block(config: FamilyConfig, eps: float, dropout: float, bidirectional: bool = True) -> Spec:
    score_bias = {
        "score_bias": "buckets",
        "num_buckets": config.get("relative_attention_num_buckets", 32),
        "max_distance": config.get("relative_attention_max_distance", 128),
        "bidirectional": bidirectional,
    }
    return {
        "num_heads": config["num_heads"],
        "inner_size": config["d_kv"] * config["num_heads"],
        "intermediate_size": config["d_ff"],
        "activation": _activation(config),
        "norm": "rms",
        "norm_place": "pre",
        "norm_eps": eps,
        "bias": False,
        "scale": 1.0,
        "dropout": dropout,
        "attention_dropout": dropout,
        "score_bias": score_bias,
        "share": "score_bias",
    }


def _layer(theirs: str, ours: str, own: str, gated: bool) -> list[Rule]:
    """A layer of the encoder (`own` is attention) or of the decoder (self_attention, then cross_attention)."""
    at = f"{theirs}.0.SelfAttention"
    rules: list[Rule] = [
        *stacked((f"{at}.q", f"{at}.k", f"{at}.v"), f"{ours}.{own}.attention.qkv", ("weight",)),
        SameTensor(f"{at}.o.weight", f"{ours}.{own}.attention.output.weight"),
        SameTensor(f"{theirs}.0.layer_norm.weight", f"{ours}.{own}.residual.norm.weight"),
    ]
    last = 1
    if own == "self_attention":
        last, at, across = 2, f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention"
        rules += [
            SameTensor(f"{at}.q.weight", f"{across}.attention.query.weight"),
            *stacked((f"{at}.k", f"{at}.v"), f"{across}.attention.key_value", ("weight",)),
            SameTensor(f"{at}.o.weight", f"{across}.attention.output.weight"),
            SameTensor(f"{theirs}.1.layer_norm.weight", f"{across}.residual.norm.weight"),
        ]
    dense, network = f"{theirs}.{last}.DenseReluDense", f"{ours}.feed_forward.network"
    inner = (f"{dense}.wi_0", f"{dense}.wi_1") if gated else (f"{dense}.wi",)
    return [
        *rules,
        *stacked(inner, f"{network}.inner", ("weight",)),
        SameTensor(f"{dense}.wo.weight", f"{network}.outer.weight"),
        SameTensor(f"{theirs}.{last}.layer_norm.weight", f"{ours}.feed_forward.residual.norm.weight"),
    ]
