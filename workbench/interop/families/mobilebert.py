"""Hugging Face MobileBERT (Sun et al., arXiv:2004.02984), with bottlenecks of which queries and keys share one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Rule
from workbench.recipe.spec import NetworkSpec

FIXED = {
    "trigram_input": True,
    "use_bottleneck": True,
    "use_bottleneck_attention": False,
    "key_query_shared_bottleneck": True,
    "classifier_activation": True,
    "normalization_type": "no_norm",
}
"""The variants of the architecture that are supported: those of the published checkpoints."""
OF_LAYER = {
    "bottleneck.input.dense": "down",
    "bottleneck.input.LayerNorm": "down_norm",
    "bottleneck.attention.dense": "attention.shared",
    "bottleneck.attention.LayerNorm": "attention.shared_norm",
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "output.bottleneck.dense": "up",
    "output.bottleneck.LayerNorm": "up_norm",
}


class Mobilebert(CheckpointFamily):
    """Hugging Face MobileBERT: a `text` stream of trigrams with `bottleneck` layers, and a pooler; no head of masked
    tokens, whose matrix there has columns beyond the table of tokens."""

    prefix = "mobilebert."
    task_heads = TaskHeads("MobileBert", "mobilebert.pooler.dense")

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "mobilebert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        found = {name: config.get(name, value) for name, value in FIXED.items()}
        if found != FIXED:
            raise WorkbenchError(f"{found}; supported: {FIXED}, as the published checkpoints have them")
        config = FamilyConfig({"hidden_act": "relu", **config})
        drop = config.get("hidden_dropout_prob", 0.0)
        text = {
            **bert_config.text_stream(config),
            "embedding": "trigram",
            "token_size": config.get("embedding_size", 128),
            "dropout": drop,
            "norm": "affine",
        }
        layer = {
            **bert_config.block(config),
            "layer": "bottleneck",
            "stream": "text",
            "bottleneck_size": config.get("intra_bottleneck_size", 128),
            "feed_forwards": config.get("num_feedforward_networks", 4),
            "dropout": drop,
            "norm": "affine",
            "repeat": config["num_hidden_layers"],
        }
        return NetworkSpec({"text": text}, [layer], poolers=["text"])

    def rules(self, config: FamilyConfig) -> list[Rule]:
        theirs, ours = "mobilebert.embeddings", "embeddings.text"
        rules: list[Rule] = [
            *bert_names.embeddings(theirs),
            *bert_names.both(f"{theirs}.embedding_transformation", f"{ours}.trigram"),
            *bert_names.both("mobilebert.pooler.dense", "poolers.text.dense"),
            Buffer(f"{theirs}.position_ids"),
        ]
        last = config.get("num_feedforward_networks", 4) - 1
        for i in range(config["num_hidden_layers"]):
            at, here = f"mobilebert.encoder.layer.{i}", f"layers.{i}"
            for name, own in OF_LAYER.items():
                rules += bert_names.both(f"{at}.{name}", f"{here}.{own}")
            for k in range(last + 1):
                inner = f"{at}.ffn.{k}." if k < last else f"{at}."
                rules += bert_names.feed_forward(f"{inner}intermediate", f"{inner}output", f"{here}.feed_forward.{k}")
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layer = described.streams["text"], described.layers[0]
        return {
            **bert_config.config_of(text, layer),
            **FIXED,
            "architectures": ["MobileBertModel"],
            "model_type": "mobilebert",
            "embedding_size": text["token_size"],
            "intra_bottleneck_size": layer["bottleneck_size"],
            "num_feedforward_networks": layer["feed_forwards"],
            "num_hidden_layers": len(described.layers),
        }
