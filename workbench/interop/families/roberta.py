"""Hugging Face RoBERTa (Liu et al., arXiv:1907.11692).

Its positions are counted from 2: row 1 of the table is that of the padding, row 0 is unused. It has one segment, whose
row is added to every word: a network here with this row has `token_types: 1`. XLM-RoBERTa and CamemBERT have other
vocabularies and the same names of tensors (`roberta.`). They are families of their own, as the library chooses its
class by the name in the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

UNUSED = 2


def heads_of(library: str, body: str = "roberta") -> TaskHeads:
    """The places of the heads of tasks in the classes of RoBERTa and those derived from it."""
    pooler = f"{body}.pooler.dense"
    return TaskHeads(library, "classifier.dense", output="classifier.out_proj", choice=(pooler, "classifier"))


class Roberta(CheckpointFamily):
    """Hugging Face RoBERTa: a `text` stream with `self` layers; head mlm."""

    model_type: ClassVar[str] = "roberta"
    library: ClassVar[str] = "Roberta"
    """The prefix of the names of their library's classes; families with RoBERTa's names derive from this one."""
    prefix = "roberta."
    counts_padding = True
    task_heads = heads_of("Roberta")

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == self.model_type

    def network(self, config: FamilyConfig) -> NetworkSpec:
        text = bert_config.text_stream(config, max_positions=counted_positions(config))
        layer = {"layer": "self", "stream": "text", "repeat": config["num_hidden_layers"], **bert_config.block(config)}
        return NetworkSpec({"text": text}, [layer], ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config, activation="gelu")}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rows = config["max_position_embeddings"]
        body = self.prefix
        positions = f"{body}embeddings.position_embeddings.weight"
        return [
            RowRanges(positions, (("embeddings.text.position.weight", (UNUSED, rows)),), rows),
            *(rule for rule in bert_names.embeddings(f"{body}embeddings") if positions not in _sources(rule)),
            *bert_names.layers(f"{body}encoder.layer", config["num_hidden_layers"]),
            *bert_names.both(f"{body}pooler.dense", "poolers.text.dense"),
            *bert_names.word_head(f"{body}embeddings.word_embeddings.weight", "lm_head", "dense", "layer_norm"),
            bert_names.decoder_bias("lm_head"),
            Buffer(f"{body}embeddings.position_ids"),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return bert_config.visibility(config)

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text = described.streams["text"]
        return {
            **bert_config.config_of(text, described.layers[0]),
            **bert_config.decoding(described),
            "architectures": [f"{self.library}{'ForMaskedLM' if 'mlm' in described.heads else 'Model'}"],
            "model_type": self.model_type,
            "num_hidden_layers": len(described.layers),
            "max_position_embeddings": (text["max_positions"] or 0) + UNUSED,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        return bert_config.with_segments(described, state)


def counted_positions(config: FamilyConfig) -> int:
    """The rows that texts read in a table of positions that is counted from the id of the padding.

    Raises:
        WorkbenchError: the padding has another id than usual, so that texts read other rows.
    """
    padding = config.get("pad_token_id", UNUSED - 1)
    if padding != UNUSED - 1:
        raise WorkbenchError(
            f"pad_token_id = {padding} is not supported: positions are counted from it, and here from {UNUSED - 1}"
        )
    return int(config["max_position_embeddings"]) - UNUSED


def _sources(rule: Rule) -> tuple[str, ...]:
    return rule.theirs if isinstance(rule, SameTensor) else ()
