"""Hugging Face ALBERT (Lan et al., arXiv:1909.11942): layers that share all weights, and narrow tables of words.

With several groups of layers, those of a group share their weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Rule
from workbench.recipe.spec import NetworkSpec, Spec


class Albert(CheckpointFamily):
    """Hugging Face ALBERT: a `text` stream with `self` layers that share all weights; heads mlm and sop."""

    prefix = "albert."
    task_heads = TaskHeads("Albert", "albert.pooler")

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "albert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        groups, layers = config.get("num_hidden_groups", 1), config["num_hidden_layers"]
        if layers % groups or config.get("inner_group_num", 1) != 1:
            raise WorkbenchError(
                f"{layers} layers in {groups} groups with {config.get('inner_group_num', 1)} different layers in each; "
                "supported are groups of equal length whose layers are the same"
            )
        if config["embedding_size"] == config["hidden_size"]:
            raise WorkbenchError(
                "embedding_size = hidden_size, and still a linear layer between them; the token embedding here has one "
                "only where the sizes differ"
            )
        text = bert_config.text_stream(config, embedding_size=config["embedding_size"])
        layer = {"layer": "self", "stream": "text", **bert_config.block(config)}
        return NetworkSpec({"text": text}, [{**layer, "repeat": layers // groups, "share": "all"}] * groups, ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config), "sop": {"objective": "sop"}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        groups = config.get("num_hidden_groups", 1)
        length = config["num_hidden_layers"] // groups
        return [
            *bert_names.embeddings("albert.embeddings"),
            *bert_names.both("albert.encoder.embedding_hidden_mapping_in", "embeddings.text.project"),
            *(rule for group in range(groups) for rule in _layer(group, f"layers.{group * length}")),
            *bert_names.both("albert.pooler", "poolers.text.dense"),
            *bert_names.word_head("albert.embeddings.word_embeddings.weight", "predictions", "dense", "LayerNorm"),
            bert_names.decoder_bias("predictions"),
            *bert_names.both("sop_classifier.classifier", "sop.classifier"),
            Buffer("albert.embeddings.position_ids"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text = described.streams["text"]
        trained = "AlbertForPreTraining" if "sop" in described.heads else "AlbertForMaskedLM"
        return {
            **bert_config.config_of(text, described.layers[0]),
            "architectures": [trained if {"mlm", "sop"} & described.heads.keys() else "AlbertModel"],
            "model_type": "albert",
            "embedding_size": text["embedding_size"],
            "num_hidden_layers": len(described.layers),
            "num_hidden_groups": sum(layer["share"] is None for layer in described.layers),
            "inner_group_num": 1,
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        return bert_config.with_segments(described, state)


def _layer(group: int, ours: str) -> list[Rule]:
    theirs = f"albert.encoder.albert_layer_groups.{group}.albert_layers.0"
    qkv = tuple(f"{theirs}.attention.{name}" for name in bert_names.QKV)
    return [
        *bert_names.stacked(qkv, f"{ours}.attention.attention.qkv"),
        *bert_names.both(f"{theirs}.attention.dense", f"{ours}.attention.attention.output"),
        *bert_names.both(f"{theirs}.attention.LayerNorm", f"{ours}.attention.residual.norm"),
        *bert_names.both(f"{theirs}.ffn", f"{ours}.feed_forward.network.inner"),
        *bert_names.both(f"{theirs}.ffn_output", f"{ours}.feed_forward.network.outer"),
        *bert_names.both(f"{theirs}.full_layer_layer_norm", f"{ours}.feed_forward.residual.norm"),
    ]
