"""Hugging Face ELECTRA (Clark et al., arXiv:2003.10555): the generator (mlm) and the discriminator (rtd).

Both have the same kind of body; the heads of a file show which of them it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility


class Electra(CheckpointFamily):
    """Hugging Face ELECTRA: a `text` stream with `self` layers; head mlm of a generator, rtd of a discriminator."""

    prefix = "electra."
    task_heads = TaskHeads(
        "Electra",
        "classifier.dense",
        output="classifier.out_proj",
        choice=("sequence_summary.summary", "classifier"),
        settings={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    )

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "electra"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        text = bert_config.text_stream(config, embedding_size=config.get("embedding_size", config["hidden_size"]))
        layer = {"layer": "self", "stream": "text", "repeat": config["num_hidden_layers"], **bert_config.block(config)}
        return NetworkSpec({"text": text}, [layer])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config, activation="gelu"), "rtd": {"objective": "rtd"}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        words = "electra.embeddings.word_embeddings.weight"
        return [
            *bert_names.embeddings("electra.embeddings"),
            *bert_names.both("electra.embeddings_project", "embeddings.text.project"),
            *bert_names.layers("electra.encoder.layer", config["num_hidden_layers"]),
            *bert_names.both("generator_predictions.dense", "mlm.dense"),
            *bert_names.both("generator_predictions.LayerNorm", "mlm.norm"),
            SameTensor("generator_lm_head.bias", "mlm.bias"),
            Copy("generator_lm_head.weight", words, "generator_lm_head.bias", own="mlm.output.weight"),
            *bert_names.both("discriminator_predictions.dense", "rtd.dense"),
            *bert_names.both("discriminator_predictions.dense_prediction", "rtd.output"),
            Buffer("electra.embeddings.position_ids"),
        ]

    def pooler(self, config: FamilyConfig) -> Spec:
        return {"activation": "gelu"}

    def visibility(self, config: FamilyConfig) -> Visibility:
        return bert_config.visibility(config)

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text = described.streams["text"]
        kinds = {"rtd": "ElectraForPreTraining", "mlm": "ElectraForMaskedLM"}
        return {
            **bert_config.config_of(text, described.layers[0]),
            **bert_config.decoding(described),
            "architectures": [next((kinds[name] for name in kinds if name in described.heads), "ElectraModel")],
            "model_type": "electra",
            "embedding_size": text["embedding_size"],
            "num_hidden_layers": len(described.layers),
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        return bert_config.with_segments(described, state)
