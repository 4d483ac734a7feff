"""Hugging Face MPNet (Song et al., arXiv:2004.09297): BERT's layers with T5's distances, one table for the stack.

Positions are counted from 2, as in RoBERTa; there are no segments. The library has no query stream: a network that was
pretrained with one is exported as the encoder without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.components.kinds import KINDS
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription, spelt_out
from workbench.interop.rules import Buffer, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

UNUSED = 2
FARTHEST = 128
"""All distances beyond share a bucket; the configuration does not have this number."""


class Mpnet(CheckpointFamily):
    """Hugging Face MPNet: a `text` stream with `self` layers that share `buckets`; head mlm."""

    prefix = "mpnet."
    counts_padding = True
    task_heads = TaskHeads(
        "MPNet", "classifier.dense", output="classifier.out_proj", choice=("mpnet.pooler.dense", "classifier")
    )

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "mpnet"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        rows = config["max_position_embeddings"] - UNUSED
        text = bert_config.text_stream(config, max_positions=rows, token_types=0)
        number = config.get("relative_attention_num_buckets", 32)
        score_bias = {"score_bias": "buckets", "num_buckets": number, "max_distance": FARTHEST}
        layer = {"layer": "self", "stream": "text", "score_bias": score_bias, **bert_config.block(config)}
        stack = {**layer, "repeat": config["num_hidden_layers"], "share": "score_bias"}
        return NetworkSpec({"text": text}, [stack], ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config, activation="gelu")}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rows, words = config["max_position_embeddings"], "mpnet.embeddings.word_embeddings.weight"
        count = config["num_hidden_layers"]
        return [
            SameTensor(words, "embeddings.text.token.weight"),
            RowRanges(
                "mpnet.embeddings.position_embeddings.weight",
                (("embeddings.text.position.weight", (UNUSED, rows)),),
                rows,
            ),
            *bert_names.both("mpnet.embeddings.LayerNorm", "embeddings.text.norm"),
            SameTensor(
                "mpnet.encoder.relative_attention_bias.weight", "layers.0.attention.attention.score_bias.table.weight"
            ),
            *(rule for i in range(count) for rule in _layer(f"mpnet.encoder.layer.{i}", f"layers.{i}")),
            *bert_names.both("mpnet.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head(words, "lm_head", "dense", "layer_norm"),
            bert_names.decoder_bias("lm_head"),
            Buffer("mpnet.embeddings.position_ids"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, first = described.streams["text"], described.layers[0]
        return {
            **bert_config.config_of(text, first),
            "architectures": ["MPNetForMaskedLM" if "mlm" in described.heads else "MPNetModel"],
            "model_type": "mpnet",
            "num_hidden_layers": len(described.layers),
            "max_position_embeddings": (text["max_positions"] or 0) + UNUSED,
            "relative_attention_num_buckets": (first["score_bias"] or {}).get("num_buckets", 32),
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """Two-stream layers as those of the text alone, which have the same weights; a head that was trained on queries
        predicts masked words as any other."""
        queries = {layer["query"] for layer in described.layers if layer["layer"] == KINDS["layer"].path("two_stream")}
        if not queries:
            return described, state
        layers = [_of_one_stream(layer) for layer in described.layers]
        streams = {name: part for name, part in described.streams.items() if name not in queries}
        tie = {ours: other for ours, other in described.tie.items() if ours.partition(".")[0] not in queries}
        heads = {name: _of_masked_words(head) for name, head in described.heads.items()}
        gone = tuple(f"embeddings.{name}." for name in queries)
        kept = {name: tensor for name, tensor in state.items() if not name.startswith(gone)}
        return described._replace(streams=streams, layers=layers, tie=tie, heads=heads), kept


def _of_one_stream(layer: Spec) -> Spec:
    """The options of the layer `two_stream` as those of `self`."""
    if layer["layer"] != KINDS["layer"].path("two_stream"):
        return layer
    same = {key: value for key, value in layer.items() if key not in ("layer", "query")}
    usual = spelt_out("layer", "self", {})
    del usual["sizes"]
    return {**usual, **same}


def _of_masked_words(head: Spec) -> Spec:
    if head["objective"] != KINDS["objective"].path("mplm"):
        return head
    usual = spelt_out("objective", "mlm", {})
    return {**usual, **head, "objective": usual["objective"]}


def _layer(theirs: str, ours: str) -> list[Rule]:
    qkv = tuple(f"{theirs}.attention.attn.{name}" for name in "qkv")
    return [
        *bert_names.stacked(qkv, f"{ours}.attention.attention.qkv"),
        *bert_names.both(f"{theirs}.attention.attn.o", f"{ours}.attention.attention.output"),
        *bert_names.both(f"{theirs}.attention.LayerNorm", f"{ours}.attention.residual.norm"),
        *bert_names.feed_forward(f"{theirs}.intermediate", f"{theirs}.output", f"{ours}.feed_forward"),
    ]
