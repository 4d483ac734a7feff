"""LUKE's released code, as Hugging Face has it (github.com/studio-ousia/luke; Yamada et al., arXiv:2010.01057).

RoBERTa's names, and those of the entities next to them. The positions of mentions are counted from 0, those of words
from 2. The entities' names are no part of the weights: `entity_vocab.json` next to them says which row is which.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.interop import bert_config, bert_names
from workbench.interop.families.roberta import UNUSED, counted_positions
from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

AWARE = "kg.models.layers.entity_aware:EntityAwareLayer"
PLAIN, KINDS = "joint", ("w2e_query", "e2w_query", "e2e_query")
ENTITIES = "luke.entity_embeddings"


class Luke(CheckpointFamily):
    """LUKE: `text` and `entity` streams, `kg.entity_aware` or `joint` layers; heads mlm and mep."""

    prefix = "luke."
    counts_padding = True
    corpus = "wiki-linked"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "luke"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        positions = counted_positions(config)
        entity = bert_config.text_stream(config, embedding="kg.entity_token", max_positions=positions)
        del entity["vocab_size"]
        entity |= {"vocabulary": config["entity_vocab_size"], "embedding_size": config["entity_emb_size"]}
        streams = {"text": bert_config.text_stream(config, max_positions=positions), "entity": entity}
        kind = "kg.entity_aware" if config.get("use_entity_aware_attention", True) else PLAIN
        layer = {"layer": kind, "streams": ["text", "entity"], "repeat": config["num_hidden_layers"]}
        return NetworkSpec(streams, [{**layer, **bert_config.block(config)}], ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        transform = {"activation": bert_config.activation(config), "norm_eps": bert_config.norm_eps(config)}
        return {
            "mlm": bert_config.word_head(config, activation="gelu"),
            "mep": token_head(config, "kg.mep", transform=transform),
        }

    def task(self, config: FamilyConfig) -> Spec:
        """The rows of the file are those of the weights: its entities stand in the order of `entity_vocab.json`."""
        transforms = [{"transform": "kg.entity_tokens", "vocabulary": "${vars.data}/entity-vocabulary.safetensors"}]
        objectives = list(self.heads(config).values())
        return {"sequence": {**self.sequence(config), "transforms": transforms}, "objectives": objectives}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rows, layers = config["max_position_embeddings"], config["num_hidden_layers"]
        words, mentions = (f"{of}.position_embeddings.weight" for of in ("luke.embeddings", ENTITIES))
        plain = [*bert_names.embeddings("luke.embeddings"), *bert_names.embeddings(ENTITIES, "embeddings.entity")]
        table = f"{ENTITIES}.entity_embeddings.weight"
        return [
            RowRanges(words, (("embeddings.text.position.weight", (UNUSED, rows)),), rows),
            RowRanges(mentions, (("embeddings.entity.position.weight", (0, rows - UNUSED)),), rows),
            *(rule for rule in plain if isinstance(rule, SameTensor) and not _is_replaced(rule)),
            SameTensor(table, "embeddings.entity.token.weight"),
            SameTensor(f"{ENTITIES}.entity_embedding_dense.weight", "embeddings.entity.project.weight"),
            *bert_names.layers("luke.encoder.layer", layers),
            *(rule for i in range(layers) for kind in KINDS for rule in _query(i, kind)),
            *bert_names.both("luke.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head("luke.embeddings.word_embeddings.weight", "lm_head", "dense", "layer_norm"),
            bert_names.decoder_bias("lm_head"),
            *bert_names.both("entity_predictions.transform.dense", "mep.dense"),
            *bert_names.both("entity_predictions.transform.LayerNorm", "mep.norm"),
            SameTensor("entity_predictions.bias", "mep.bias"),
            Copy("entity_predictions.decoder.weight", table, "entity_predictions.bias", own="mep.output.weight"),
            Buffer("luke.embeddings.position_ids"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, entity = described.streams["text"], described.streams["entity"]
        first = described.layers[0]
        return {
            **bert_config.config_of(text, first),
            "architectures": ["LukeForMaskedLM" if {"mlm", "mep"} & described.heads.keys() else "LukeModel"],
            "model_type": "luke",
            "num_hidden_layers": len(described.layers),
            "max_position_embeddings": (text["max_positions"] or 0) + UNUSED,
            "entity_vocab_size": entity["vocabulary"],
            "entity_emb_size": entity["embedding_size"],
            "use_entity_aware_attention": first["layer"] == AWARE,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """The vocabulary's file as the number of its rows; segments of words and of entities as many as both need."""
        described, state = bert_config.with_segments(described, state)
        table = state.get("embeddings.entity.token.weight")
        if table is None:
            return described, state
        entity = {**described.streams["entity"], "vocabulary": len(table)}
        return described._replace(streams={**described.streams, "entity": entity}), state


def _is_replaced(rule: SameTensor) -> bool:
    """BERT's table of words for entities, and positions, which have rules of their own."""
    return rule.source.endswith("position_embeddings.weight") or rule.source == f"{ENTITIES}.word_embeddings.weight"


def _query(layer: int, kind: str) -> list[Rule]:
    theirs = f"luke.encoder.layer.{layer}.attention.self.{kind}"
    return bert_names.both(theirs, f"layers.{layer}.attention.attention.{kind}")
