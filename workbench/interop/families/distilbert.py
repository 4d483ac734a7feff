"""Hugging Face DistilBERT (Sanh et al., arXiv:1910.01108): BERT's layers without segments and without a pooler.

The classes of tasks have a pooler of their own, `pre_classifier` with ReLU. Their heads of tags and answers have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

WORDS = "distilbert.embeddings.word_embeddings.weight"
KEYS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
"""Its keys of the configuration, and BERT's."""
SAME = ("vocab_size", "max_position_embeddings", "initializer_range", "pad_token_id")


class Distilbert(CheckpointFamily):
    """Hugging Face DistilBERT: a `text` stream without segments, with `self` layers; head mlm."""

    prefix = "distilbert."
    task_heads = TaskHeads("DistilBert", "pre_classifier")

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "distilbert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        bert = _as_bert(config)
        layer = {"layer": "self", "stream": "text", "repeat": bert["num_hidden_layers"], **bert_config.block(bert)}
        return NetworkSpec({"text": bert_config.text_stream(bert, token_types=0)}, [layer])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(_as_bert(config))}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        embeddings = "distilbert.embeddings"
        return [
            SameTensor(WORDS, "embeddings.text.token.weight"),
            SameTensor(f"{embeddings}.position_embeddings.weight", "embeddings.text.position.weight"),
            *bert_names.both(f"{embeddings}.LayerNorm", "embeddings.text.norm"),
            *(rule for i in range(config["n_layers"]) for rule in _layer(f"distilbert.transformer.layer.{i}", i)),
            *bert_names.both("vocab_transform", "mlm.dense"),
            *bert_names.both("vocab_layer_norm", "mlm.norm"),
            SameTensor("vocab_projector.bias", "mlm.bias"),
            Copy("vocab_projector.weight", WORDS, "vocab_projector.bias", own="mlm.output.weight"),
            Buffer(f"{embeddings}.position_ids"),
        ]

    def pooler(self, config: FamilyConfig) -> Spec:
        return {"activation": "relu"}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        bert = bert_config.config_of(described.streams["text"], described.layers[0])
        bert["num_hidden_layers"] = len(described.layers)
        return {
            **{theirs: bert[key] for theirs, key in KEYS.items()},
            **{key: bert[key] for key in SAME},
            "architectures": ["DistilBertForMaskedLM" if "mlm" in described.heads else "DistilBertModel"],
            "model_type": "distilbert",
        }


def _as_bert(config: FamilyConfig) -> FamilyConfig:
    """The configuration under BERT's keys. Its code states the epsilon of norms, which the configuration lacks."""
    return FamilyConfig({**config, **{key: config[theirs] for theirs, key in KEYS.items() if theirs in config}})


def _layer(theirs: str, number: int) -> list[Rule]:
    ours = f"layers.{number}"
    qkv = tuple(f"{theirs}.attention.{name}_lin" for name in "qkv")
    return [
        *bert_names.stacked(qkv, f"{ours}.attention.attention.qkv"),
        *bert_names.both(f"{theirs}.attention.out_lin", f"{ours}.attention.attention.output"),
        *bert_names.both(f"{theirs}.sa_layer_norm", f"{ours}.attention.residual.norm"),
        *bert_names.both(f"{theirs}.ffn.lin1", f"{ours}.feed_forward.network.inner"),
        *bert_names.both(f"{theirs}.ffn.lin2", f"{ours}.feed_forward.network.outer"),
        *bert_names.both(f"{theirs}.output_layer_norm", f"{ours}.feed_forward.residual.norm"),
    ]
