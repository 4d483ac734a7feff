"""Hugging Face ModernBERT (Warner et al., arXiv:2412.13663).

Rotary positions of two bases, gated feed-forward blocks, norms before the sublayers except for the first attention,
which reads the embedding's norm. Every third layer sees the whole text, the others `local_attention // 2` tokens each
way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.bert_config import ACTIVATIONS, THEIR_ACTIVATIONS
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, Rule, SameTensor
from workbench.models.feed_forward import Activation
from workbench.recipe.spec import NetworkSpec, Spec

GATED: dict[str, Activation] = {
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "silu": "swiglu",
}
THEIR_GATED = {ours: theirs for theirs, ours in reversed(GATED.items())}
LOCAL, WHOLE = "sliding_attention", "full_attention"
ROTARY = {LOCAL: ("local_rope_theta", 10_000.0), WHOLE: ("global_rope_theta", 160_000.0)}
"""By kind of layer, the key of configurations before `rope_parameters`, and the base by default."""


class Modernbert(CheckpointFamily):
    """Hugging Face ModernBERT: a `text` stream with `self` layers, local and global ones, a last `norm`; mlm."""

    prefix = "model."
    task_heads = TaskHeads(
        "ModernBert",
        "head.dense",
        norm="head.norm",
        without=frozenset({"token_classification", "span_extraction"}),  # they have the pooler's layers at each token
    )

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "modernbert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        eps, bias = float(config.get("norm_eps", 1e-5)), _bias(config)
        text = {
            "embedding": "token",
            "hidden_size": config["hidden_size"],
            "vocab_size": config["vocab_size"],
            "max_positions": None,
            "token_types": 0,
            "norm_eps": eps,
            "norm_bias": bias,
            "dropout": config.get("embedding_dropout", 0.0),
        }
        layers = [_layer(config, number, kind) for number, kind in enumerate(_kinds(config))]
        last = {"layer": "norm", "stream": "text", "norm_eps": eps, "bias": bias}
        return NetworkSpec({"text": text}, [*layers, last])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        name = config.get("classifier_activation", "gelu")
        alike = config.get("classifier_bias", False) == _bias(config) and config.get("decoder_bias", True)
        others = [each for each in config.get("architectures") or () if "For" in each and "MaskedLM" not in each]
        if name not in ACTIVATIONS or not alike or others:  # classes of other heads have layers of the same names
            return {}
        eps = float(config.get("norm_eps", 1e-5))
        transform = {"activation": ACTIVATIONS[name], "norm_eps": eps, "bias": _bias(config)}
        return {"mlm": token_head(config, "mlm", transform=transform)}

    def pooler(self, config: FamilyConfig) -> Spec:
        name = config.get("classifier_activation", "gelu")
        if name not in ACTIVATIONS:
            raise unknown("activation", name, ACTIVATIONS, "classifier_activation of the configuration")
        if bool(config.get("classifier_bias", False)) != _bias(config):
            raise WorkbenchError(f"classifier_bias = {config.get('classifier_bias')}; supported: that of other layers")
        pooler = "mean" if config.get("classifier_pooling", "cls") == "mean" else "summary"
        eps = float(config.get("norm_eps", 1e-5))
        return {"pooler": pooler, "activation": ACTIVATIONS[name], "norm_eps": eps, "bias": _bias(config)}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        words = "model.embeddings.tok_embeddings.weight"
        last = config["num_hidden_layers"]
        rules: list[Rule] = [
            SameTensor(words, "embeddings.text.token.weight"),
            SameTensor("decoder.bias", "mlm.bias"),
            Copy("decoder.weight", words, "decoder.bias", own="mlm.output.weight"),
        ]
        for parameter in ("weight", "bias") if _bias(config) else ("weight",):
            pairs = {
                "model.embeddings.norm": "embeddings.text.norm",
                "model.final_norm": f"layers.{last}.norm",
                "head.dense": "mlm.dense",
                "head.norm": "mlm.norm",
            }
            for i in range(last):
                pairs |= _of_layer(f"model.layers.{i}", f"layers.{i}", first=i == 0)
            rules += [SameTensor(f"{theirs}.{parameter}", f"{ours}.{parameter}") for theirs, ours in pairs.items()]
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layers = described.streams["text"], described.layers[:-1]
        first, bias = layers[0], layers[0]["bias"]
        kinds = [WHOLE if layer["window"] is None else LOCAL for layer in layers]
        windows = [layer["window"] for layer in layers if layer["window"] is not None]
        bases = {kind: layer["rotary"] for kind, layer in zip(kinds, layers, strict=True) if layer["rotary"]}
        pooler = described.poolers.get("text", {})
        activation = pooler.get("activation") or described.heads.get("mlm", {}).get("head.transform.activation")
        return {
            "architectures": ["ModernBertForMaskedLM" if "mlm" in described.heads else "ModernBertModel"],
            "model_type": "modernbert",
            "vocab_size": text["vocab_size"],
            "hidden_size": text["hidden_size"],
            "intermediate_size": first["intermediate_size"],
            "num_hidden_layers": len(layers),
            "num_attention_heads": first["num_heads"],
            "hidden_activation": THEIR_GATED.get(first["activation"], "gelu"),
            "classifier_activation": THEIR_ACTIVATIONS.get(activation or "gelu", "gelu"),
            "classifier_pooling": "mean" if pooler.get("pooler") == KINDS["pooler"].path("mean") else "cls",
            "layer_types": kinds,
            "local_attention": 2 * windows[0] if windows else 128,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": bases.get(kind, base)}
                for kind, (_, base) in ROTARY.items()
            },
            "norm_eps": first["norm_eps"],
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), bias),
            "decoder_bias": True,
            "embedding_dropout": text["dropout"],
            "attention_dropout": first["attention_dropout"],
            "mlp_dropout": first["dropout"],
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
        }


def _bias(config: FamilyConfig) -> bool:
    """Whether norms and linear layers have biases.

    Raises:
        WorkbenchError: some have and others have not.
    """
    stated = {name: bool(config.get(name, False)) for name in ("norm_bias", "attention_bias", "mlp_bias")}
    if len(set(stated.values())) > 1:
        raise WorkbenchError(f"{stated}: supported are layers with a bias in all norms and linear layers, or in none")
    return stated["norm_bias"]


def _kinds(config: FamilyConfig) -> list[str]:
    """For each layer whether it is global or local."""
    every, count = config.get("global_attn_every_n_layers", 3), config["num_hidden_layers"]
    kinds = config.get("layer_types") or [LOCAL if number % every else WHOLE for number in range(count)]
    if len(kinds) != count or {*kinds} - {*ROTARY}:
        raise WorkbenchError(f"layer_types = {kinds}; allowed: {count} of {', '.join(ROTARY)}")
    return list(kinds)


def _layer(config: FamilyConfig, number: int, kind: str) -> Spec:
    name = config.get("hidden_activation", "gelu")
    if name not in GATED:
        raise unknown("activation", name, GATED, "hidden_activation of the configuration")
    key, base = ROTARY[kind]
    rotary = (config.get("rope_parameters") or {}).get(kind) or {}
    if rotary.get("rope_type", "default") != "default":
        raise WorkbenchError(f"rope_type = {rotary['rope_type']!r}; supported are the plain rotary positions (default)")
    return {
        "layer": "self",
        "stream": "text",
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "activation": GATED[name],
        "attention_norm": number > 0,
        "norm_place": "pre",
        "norm_eps": float(config.get("norm_eps", 1e-5)),
        "bias": _bias(config),
        "rotary": float(rotary.get("rope_theta", config.get(key, base))),
        "window": None if kind == WHOLE else config.get("local_attention", 128) // 2,
        "dropout": config.get("mlp_dropout", 0.0),
        "attention_dropout": config.get("attention_dropout", 0.0),
    }


def _of_layer(theirs: str, ours: str, first: bool) -> dict[str, str]:
    """The names of a layer's linear layers and norms, theirs and ours."""
    normed = {} if first else {f"{theirs}.attn_norm": f"{ours}.attention.residual.norm"}
    return normed | {
        f"{theirs}.attn.Wqkv": f"{ours}.attention.attention.qkv",
        f"{theirs}.attn.Wo": f"{ours}.attention.attention.output",
        f"{theirs}.mlp_norm": f"{ours}.feed_forward.residual.norm",
        f"{theirs}.mlp.Wi": f"{ours}.feed_forward.network.inner",
        f"{theirs}.mlp.Wo": f"{ours}.feed_forward.network.outer",
    }
