"""Hugging Face BERT (Devlin et al., arXiv:1810.04805), and the files of Google's published code that were converted to
torch.

Names of `BertForPreTraining`, `BertForMaskedLM` and `BertModel`; the last one without the prefix `bert.`. Those of
SpanBERT's pretraining (Joshi et al., arXiv:1907.10529) are the same, with one more head, which the library ignores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Rule
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

WORDS = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.0.attention.self.query.weight"
TENSORFLOW = {"gamma": "weight", "beta": "bias"}


class Bert(CheckpointFamily):
    """Hugging Face BERT, and SpanBERT: a `text` stream with `self` layers; heads mlm, nsp and sbo."""

    prefix = "bert."
    library = "Bert"
    task_heads = TaskHeads("Bert", "bert.pooler.dense")
    """The prefix of the names of their library's classes; families with BERT's names derive from this one."""

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        """Files older than the library's `model_type` have its names, and no other names of layers."""
        own = not any("_ent." in name for name in names) and WORDS in names and QUERY in names
        return config.get("model_type", "bert" if own else None) == "bert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        layer = {"layer": "self", "stream": "text", "repeat": config["num_hidden_layers"], **bert_config.block(config)}
        return NetworkSpec({"text": bert_config.text_stream(config)}, [layer], ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        spans = {
            "objective": "sbo",
            "max_span": config.get("max_pair_targets", 20),
            "place_size": config.get("pair_position_embedding_size", 200),
            "norm_eps": bert_config.norm_eps(config),
        }
        return {"mlm": bert_config.word_head(config), "nsp": {"objective": "nsp"}, "sbo": spans}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        words = f"{self.prefix}embeddings.word_embeddings.weight"
        return [
            *bert_names.embeddings(f"{self.prefix}embeddings"),
            *bert_names.layers(f"{self.prefix}encoder.layer", config["num_hidden_layers"]),
            *bert_names.both(f"{self.prefix}pooler.dense", "poolers.text.dense"),
            *bert_names.word_head(words),
            *bert_names.span_head(words),
            *bert_names.both("cls.seq_relationship", "nsp.classifier"),
            bert_names.decoder_bias(),
            Buffer(f"{self.prefix}embeddings.position_ids"),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return bert_config.visibility(config)

    def config(self, described: ModelDescription) -> dict[str, Any]:
        trained = "ForPreTraining" if "nsp" in described.heads else "ForMaskedLM"
        kind = trained if {"mlm", "nsp"} & described.heads.keys() else "Model"
        return {
            "architectures": [f"{self.library}{kind}"],
            "model_type": self.library.lower(),
            "num_hidden_layers": len(described.layers),
            **bert_config.config_of(described.streams["text"], described.layers[0]),
            **bert_config.decoding(described),
            **_pair_targets(described.heads.get("sbo", {})),
        }

    def spelt(self, name: str) -> str:
        """The name; files converted from TensorFlow have gamma and beta."""
        stem, _, last = name.rpartition(".")
        return f"{stem}.{TENSORFLOW[last]}" if last in TENSORFLOW else name

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        return bert_config.with_segments(described, state)


def _pair_targets(head: Spec) -> dict[str, Any]:
    """The keys of SpanBERT's head, where there is one."""
    if not head:
        return {}
    return {"max_pair_targets": head["max_span"], "pair_position_embedding_size": head["place_size"]}
