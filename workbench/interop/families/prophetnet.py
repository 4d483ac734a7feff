"""Hugging Face ProphetNet (Qi et al., arXiv:2001.04063): an encoder on `text`, a decoder on `target` and `query`.

Positions are counted from 1, with a table for each side; a token is predicted from its own position, so the decoder's
table reaches one farther than its text. Both sides have one table of words, which also scores them. The decoder's rows
of `query` have a table of their own, a row for each stream.

Version 5 of the library mixes the relative positions of these rows up where it reads several rows at once, as for its
loss. Where it generates with a cache, its scores are those of the released code, and of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.bert_config import ACTIVATIONS, THEIR_ACTIVATIONS
from workbench.interop.bert_names import both, stacked
from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

FIRST = 1  # position, behind the padding's
EPS = 1e-5
STACKS = {"encoder": "text", "decoder": "target"}


class Prophetnet(CheckpointFamily):
    """Hugging Face ProphetNet: streams `text`, `target` and `query`, layers `self` and `cross`; head future_ngrams."""

    prefix = "prophetnet."
    leaves = ("lm_head.bias",)

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "prophetnet"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        if config.get("eps", 0.0) or config.get("disable_ngram_loss"):
            raise WorkbenchError("eps and disable_ngram_loss change the loss; allowed: 0 and false")
        token = {
            "embedding": "token",
            "hidden_size": config["hidden_size"],
            "vocab_size": config["vocab_size"],
            "max_positions": config["max_position_embeddings"] - FIRST,
            "token_types": 0,
            "dropout": config.get("dropout", 0.1),
            "norm_eps": EPS,
        }
        bias = {
            "score_bias": "projected_buckets",
            "num_buckets": config.get("num_buckets", 32),
            "max_distance": config.get("relative_max_distance", 128),
        }
        layers = [
            {"layer": "self", "stream": "text", **_block(config, "encoder")},
            {"layer": "cross", "stream": "target", "query": "query", "to": "text", **_block(config, "decoder")},
        ]
        layers[1]["score_bias"] = bias
        streams = {"text": dict(token), "target": dict(token), "query": {**token, "vocab_size": config["ngram"]}}
        tie = {
            "target.token": "text.token",
            "query.position": "target.position",
            "query.norm": "target.norm",
        }
        return NetworkSpec(streams, layers, tie=tie)

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"future_ngrams": {**token_head(config, "future_ngrams"), "ngram": config["ngram"]}}

    def sequence(self, config: FamilyConfig) -> Spec:
        return {**super().sequence(config), "begin": None}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rows, depth = config["max_position_embeddings"], config["num_encoder_layers"]
        words = "prophetnet.word_embeddings.weight"
        rules: list[Rule] = [
            SameTensor(words, "embeddings.text.token.weight"),
            SameTensor("prophetnet.decoder.ngram_embeddings.weight", "embeddings.query.token.weight"),
            Copy("lm_head.weight", words, own="future_ngrams.output.weight"),
        ]
        for stack, stream in STACKS.items():
            theirs, ours = f"prophetnet.{stack}", f"embeddings.{stream}"
            table = (f"{ours}.position.weight", (FIRST, rows))
            rules += [
                Copy(f"{theirs}.word_embeddings.weight", words),
                RowRanges(f"{theirs}.position_embeddings.weight", (table,), rows),
                *both(f"{theirs}.embeddings_layer_norm", f"{ours}.norm"),
            ]
        for i in range(depth):
            theirs, ours = f"prophetnet.encoder.layers.{i}", f"layers.{i}"
            rules += [*_self(theirs, f"{ours}.attention"), *_feed_forward(theirs, ours)]
        for i in range(config["num_decoder_layers"]):
            theirs, ours = f"prophetnet.decoder.layers.{i}", f"layers.{depth + i}"
            bias = f"{ours}.self_attention.attention.score_bias.project"
            rules += [*_self(theirs, f"{ours}.self_attention"), *_cross(theirs, f"{ours}.cross_attention")]
            rules += [*both(f"{theirs}.self_attn.relative_pos_embeddings", bias), *_feed_forward(theirs, ours)]
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, query = described.streams["text"], described.streams["query"]
        stacks = [[one for one in described.layers if one["stream"] == stream] for stream in STACKS.values()]
        encoder, decoder = (stack[0] for stack in stacks)
        bias = decoder["score_bias"]
        named = "ForConditionalGeneration" if "future_ngrams" in described.heads else "Model"
        return {
            "architectures": [f"ProphetNet{named}"],
            "model_type": "prophetnet",
            "vocab_size": text["vocab_size"],
            "hidden_size": text["hidden_size"],
            "max_position_embeddings": text["max_positions"] + FIRST,
            "num_encoder_layers": len(stacks[0]),
            "num_decoder_layers": len(stacks[1]),
            "num_encoder_attention_heads": encoder["num_heads"],
            "num_decoder_attention_heads": decoder["num_heads"],
            "encoder_ffn_dim": encoder["intermediate_size"],
            "decoder_ffn_dim": decoder["intermediate_size"],
            "activation_function": THEIR_ACTIVATIONS.get(encoder["activation"], "gelu"),
            "ngram": query["vocab_size"],
            "num_buckets": bias["num_buckets"],
            "relative_max_distance": bias["max_distance"],
            "dropout": text["dropout"],
            "attention_dropout": encoder["attention_dropout"],
            "pad_token_id": 0,
        }


def _block(config: FamilyConfig, stack: str) -> Spec:
    name = config.get("activation_function", "gelu")
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS, "activation_function of the configuration")
    return {
        "num_heads": config[f"num_{stack}_attention_heads"],
        "intermediate_size": config[f"{stack}_ffn_dim"],
        "activation": ACTIVATIONS[name],
        "norm_eps": EPS,
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.1),
        "repeat": config[f"num_{stack}_layers"],
    }


def _self(theirs: str, ours: str) -> list[Rule]:
    qkv = tuple(f"{theirs}.self_attn.{name}_proj" for name in ("query", "key", "value"))
    return [
        *stacked(qkv, f"{ours}.attention.qkv"),
        *both(f"{theirs}.self_attn.out_proj", f"{ours}.attention.output"),
        *both(f"{theirs}.self_attn_layer_norm", f"{ours}.residual.norm"),
    ]


def _cross(theirs: str, ours: str) -> list[Rule]:
    return [
        *both(f"{theirs}.cross_attn.query_proj", f"{ours}.attention.query"),
        *stacked(tuple(f"{theirs}.cross_attn.{name}_proj" for name in ("key", "value")), f"{ours}.attention.key_value"),
        *both(f"{theirs}.cross_attn.out_proj", f"{ours}.attention.output"),
        *both(f"{theirs}.cross_attn_layer_norm", f"{ours}.residual.norm"),
    ]


def _feed_forward(theirs: str, ours: str) -> list[Rule]:
    return [
        *both(f"{theirs}.feed_forward.intermediate", f"{ours}.feed_forward.network.inner"),
        *both(f"{theirs}.feed_forward.output", f"{ours}.feed_forward.network.outer"),
        *both(f"{theirs}.feed_forward_layer_norm", f"{ours}.feed_forward.residual.norm"),
    ]
