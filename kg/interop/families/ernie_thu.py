"""ERNIE-THU's released code (github.com/thunlp/ERNIE; Zhang et al., arXiv:1905.07129).

BERT's names, and in the layers `mix` and `norm` of `layer_types` those of the entities next to them. The entities'
vectors are no part of its weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule
from workbench.recipe.spec import NetworkSpec, Spec

PLAIN, FIRST, FUSED = "sim", "mix", "norm"
ENTITY_SIZE, ENTITY_HEADS = 100, 4
"""Values of the published model. Its configuration does not have them."""


class ErnieThu(CheckpointFamily):
    """ERNIE-THU: `text` and `entity` streams, `self` and `kg.aggregator` layers; heads mlm, nsp and dea."""

    prefix = "bert."
    corpus = "wiki-linked"
    supplied: ClassVar = {"entity": {"path": "${vars.data}/entities.safetensors"}}
    free = CheckpointFamily.free | {"path", "trainable", "shuffled", "control", "seed"}

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return any(name.endswith("intermediate.dense_ent.weight") for name in names)

    def network(self, config: FamilyConfig) -> NetworkSpec:
        size = config.get("ent_hidden_size", ENTITY_SIZE)
        entity = {"embedding": "kg.entity_table", "path": torch.zeros(1, size), "hidden_size": size}
        layers = [_layer(config, kind) for kind in _kinds(config)]
        return NetworkSpec({"text": bert_config.text_stream(config), "entity": entity}, layers, ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {
            "mlm": bert_config.word_head(config),
            "nsp": {"objective": "nsp"},
            "dea": {"objective": "kg.dea"},
        }

    def task(self, config: FamilyConfig) -> Spec:
        heads = self.heads(config)
        transforms = [{"transform": "kg.entity_stream", "table": "${vars.data}/entities.safetensors"}]
        return {
            "sequence": {**self.sequence(config), "transforms": transforms},
            "objectives": [heads["mlm"], heads["dea"]],
        }

    def rules(self, config: FamilyConfig) -> list[Rule]:
        layers = [
            rule
            for i, kind in enumerate(_kinds(config))
            if kind != PLAIN
            for rule in _entities(f"bert.encoder.layer.{i}", f"layers.{i}", attention=kind == FUSED)
        ]
        return [
            *bert_names.embeddings("bert.embeddings"),
            *bert_names.layers("bert.encoder.layer", len(_kinds(config))),
            *layers,
            *bert_names.both("bert.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head("bert.embeddings.word_embeddings.weight"),
            *bert_names.both("cls.seq_relationship", "nsp.classifier"),
            *bert_names.both("cls.predictions_ent.transform.dense", "dea.dense"),
            *bert_names.both("cls.predictions_ent.transform.LayerNorm", "dea.norm"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layers = described.streams["text"], described.layers
        heads = [layer["num_heads"] for layer in layers if isinstance(layer["num_heads"], list)]
        return {
            **bert_config.config_of(text, {**layers[0], "num_heads": _text_heads(layers[0])}),
            "num_hidden_layers": len(layers),
            "layer_types": [_kind(layer) for layer in layers],
            "ent_hidden_size": described.streams["entity"]["hidden_size"],
            "ent_num_attention_heads": heads[0][1] if heads else ENTITY_HEADS,
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """The new entities of the last layer that makes any, which nobody reads, as ones that are always zero."""
        place = max((i for i, layer in enumerate(described.layers) if _kind(layer) != PLAIN), default=None)
        if place is None or described.layers[place]["entity_output"] is not False:
            return described, state
        last = described.layers[place]
        size, inner = described.streams["entity"]["hidden_size"], last["intermediate_size"]
        ours = f"layers.{place}"
        added = {
            f"{ours}.entity_outer.weight": torch.zeros(size, inner),
            f"{ours}.entity_outer.bias": torch.zeros(size),
            f"{ours}.entity_residual.norm.weight": torch.ones(size),
            f"{ours}.entity_residual.norm.bias": torch.zeros(size),
        }
        layers = [*described.layers[:place], {**last, "entity_output": True}, *described.layers[place + 1 :]]
        return described._replace(layers=layers), {**state, **added}

    def spelt(self, name: str) -> str:
        """The released file says gamma and beta."""
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _kinds(config: FamilyConfig) -> list[str]:
    """The kind of each layer: the stack continues with text alone where `layer_types` names fewer than there are, as
    the authors' code builds it."""
    named = list(config["layer_types"])
    wrong = sorted({kind for kind in named if kind not in (PLAIN, FIRST, FUSED)}, key=str)
    if wrong:
        raise WorkbenchError(f"layer_types has {wrong[0]!r}; allowed: {PLAIN}, {FIRST}, {FUSED}")
    return [*named, *[PLAIN] * (config.get("num_hidden_layers", len(named)) - len(named))]


def _layer(config: FamilyConfig, kind: str) -> Spec:
    block = bert_config.block(config)
    if kind == PLAIN:
        return {"layer": "self", "stream": "text", **block}
    heads = [block["num_heads"], config.get("ent_num_attention_heads", ENTITY_HEADS)]
    fused = {**block, "layer": "kg.aggregator", "streams": ["text", "entity"], "num_heads": heads}
    return fused if kind == FUSED else {**fused, "entity_attention": False}


def _kind(layer: Spec) -> str:
    if layer["layer"] == "kg.models.layers.aggregator:AggregatorLayer":
        return FUSED if layer["entity_attention"] else FIRST
    return PLAIN


def _text_heads(layer: Spec) -> Any:
    return layer["num_heads"][0] if isinstance(layer["num_heads"], list) else layer["num_heads"]


def _entities(theirs: str, ours: str, attention: bool) -> list[Rule]:
    """The entities' part of a layer."""
    own = [
        *bert_names.stacked(
            tuple(f"{theirs}.attention.self_ent.{name}" for name in bert_names.QKV),
            f"{ours}.entity_attention.attention.qkv",
        ),
        *bert_names.both(f"{theirs}.attention.output_ent.dense", f"{ours}.entity_attention.attention.output"),
        *bert_names.both(f"{theirs}.attention.output_ent.LayerNorm", f"{ours}.entity_attention.residual.norm"),
    ]
    return [
        *(own if attention else []),
        *bert_names.both(f"{theirs}.intermediate.dense_ent", f"{ours}.entity_inner"),
        *bert_names.both(f"{theirs}.output.dense_ent", f"{ours}.entity_outer"),
        *bert_names.both(f"{theirs}.output.LayerNorm_ent", f"{ours}.entity_residual.norm"),
    ]
