"""K-BERT's released code (github.com/autoliuweijie/K-BERT; Liu et al., arXiv:1909.07606), which has UER-py's names.

Its segments are 1 and 2, with 0 for padding; ours are 0 and 1. Its norms divide by the unbiased standard deviation. It
comes as a single file; without a configuration its sizes are those of the tensors, with heads of 64.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop.bert_names import both, stacked
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

WORDS = "embedding.word_embedding.weight"
LAYER = "encoder.transformer.{}"
HEAD_SIZE = 64
NORM = {"norm": "unbiased", "norm_eps": 1e-6}


class KBert(CheckpointFamily):
    """K-BERT (UER-py): a `text` stream with `self` layers and its own norm; no heads but the pooler."""

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return WORDS in names and f"{LAYER.format(0)}.self_attn.linear_layers.0.weight" in names

    corpus = "wiki-linked"

    def task(self, config: FamilyConfig) -> Spec:
        length = config["max_position"]
        tree = {
            "transform": "kg.sentence_tree",
            "graph": "${vars.data}/graph",
            "max_length": length,
            "triples": {"most": 2},
        }
        sequence = {"builder": "document", "max_length": length // 2, "transforms": [tree]}
        return {"sequence": sequence, "objectives": [{"objective": "mlm"}]}

    def network(self, config: FamilyConfig) -> NetworkSpec:
        text = {
            "embedding": "token",
            "hidden_size": config["hidden_size"],
            "vocab_size": config["vocab_size"],
            "max_positions": config["max_position"],
            "token_types": config["segment_vocab"] - 1,
            "dropout": config.get("dropout", 0.1),
            **NORM,
        }
        layer = {
            "layer": "self",
            "stream": "text",
            "num_heads": config["heads_num"],
            "intermediate_size": config["feedforward_size"],
            "dropout": config.get("dropout", 0.1),
            "attention_dropout": config.get("dropout", 0.1),
            "repeat": config["layers_num"],
            **NORM,
        }
        return NetworkSpec({"text": text}, [layer], ["text"])

    def rules(self, config: FamilyConfig) -> list[Rule]:
        segments = config["segment_vocab"]
        return [
            SameTensor(WORDS, "embeddings.text.token.weight"),
            SameTensor("embedding.position_embedding.weight", "embeddings.text.position.weight"),
            RowRanges(
                "embedding.segment_embedding.weight",
                (("embeddings.text.token_type.weight", (1, segments)),),
                segments,
            ),
            *_norm("embedding.layer_norm", "embeddings.text.norm"),
            *(rule for i in range(config["layers_num"]) for rule in _layer(LAYER.format(i), f"layers.{i}")),
            *both("output_layer_1", "poolers.text.dense"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layer = described.streams["text"], described.layers[0]
        return {
            "emb_size": text["hidden_size"],
            "hidden_size": text["hidden_size"],
            "feedforward_size": layer["intermediate_size"],
            "heads_num": layer["num_heads"],
            "layers_num": len(described.layers),
            "dropout": layer["dropout"],
            "vocab_size": text["vocab_size"],
            "max_position": text["max_positions"],
            "segment_vocab": text["token_types"] + 1,
        }

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        words, inner = state[WORDS], state[f"{LAYER.format(0)}.feed_forward.linear_1.weight"]
        hidden = words.shape[1]
        heads = {"heads_num": hidden // HEAD_SIZE} if hidden % HEAD_SIZE == 0 else {}
        if not heads and "heads_num" not in config:
            raise WorkbenchError(
                f"its width {hidden} is no multiple of {HEAD_SIZE}, so the number of its heads cannot be guessed; put "
                "a config.json next to it with heads_num"
            )
        found = {
            "hidden_size": hidden,
            "vocab_size": len(words),
            "feedforward_size": len(inner),
            "layers_num": len({name.split(".")[2] for name in state if name.startswith("encoder.transformer.")}),
            "max_position": len(state["embedding.position_embedding.weight"]),
            "segment_vocab": len(state["embedding.segment_embedding.weight"]),
            **heads,
        }
        return FamilyConfig({**found, **config})


def _layer(theirs: str, ours: str) -> list[Rule]:
    maps = tuple(f"{theirs}.self_attn.linear_layers.{i}" for i in range(3))
    return [
        *stacked(maps, f"{ours}.attention.attention.qkv"),
        *both(f"{theirs}.self_attn.final_linear", f"{ours}.attention.attention.output"),
        *_norm(f"{theirs}.layer_norm_1", f"{ours}.attention.residual.norm"),
        *both(f"{theirs}.feed_forward.linear_1", f"{ours}.feed_forward.network.inner"),
        *both(f"{theirs}.feed_forward.linear_2", f"{ours}.feed_forward.network.outer"),
        *_norm(f"{theirs}.layer_norm_2", f"{ours}.feed_forward.residual.norm"),
    ]


def _norm(theirs: str, ours: str) -> list[Rule]:
    return [SameTensor(f"{theirs}.gamma", f"{ours}.weight"), SameTensor(f"{theirs}.beta", f"{ours}.bias")]
