"""Hugging Face XLNet (Yang et al., arXiv:1906.08237): a content stream, a query stream, relative positions, segments.

Distances are positions of queries minus those of keys, as in Transformer-XL; each layer has u, v and s. A configuration
with `attn_type: uni` reads from left to right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import ByHead, Copy, ReshapedTensor, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

WORDS = "transformer.word_embedding.weight"


class Xlnet(CheckpointFamily):
    """Hugging Face XLNet: `text` and `query` streams, `two_stream` layers with `relative` and segments; head plm."""

    prefix = "transformer."

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "xlnet"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        for key, wanted in (("clamp_len", -1), ("bi_data", False), ("same_length", False)):
            if config.get(key, wanted) != wanted:
                raise WorkbenchError(f"{key} = {config[key]} is not supported; allowed: {wanted}")
        dropout, width = config.get("dropout", 0.1), config["d_model"]
        size = config.get("d_head") or width // config["n_head"]
        if size * config["n_head"] != width:
            raise WorkbenchError(f"d_head x n_head = {size * config['n_head']}, d_model = {width}; they must be equal")
        text = {
            "embedding": "token",
            "hidden_size": width,
            "vocab_size": config["vocab_size"],
            "max_positions": None,
            "token_types": 0,
            "norm": None,
            "dropout": dropout,
        }
        query = {"embedding": "vector", "hidden_size": width, "dropout": dropout}
        layer = {
            "layer": "two_stream",
            "stream": "text",
            "query": "query",
            "num_heads": config["n_head"],
            "intermediate_size": config["d_inner"],
            "activation": _activation(config),
            "norm_eps": bert_config.norm_eps(config),
            "attention_bias": False,
            "dropout": dropout,
            "attention_dropout": dropout,
            "score_bias": {"score_bias": "relative", "segments": True},
            "repeat": config["n_layer"],
        }
        return NetworkSpec({"text": text, "query": query}, [layer])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"plm": token_head(config, "plm")}

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal" if config.get("attn_type", "bi") == "uni" else "bidirectional"

    def rules(self, config: FamilyConfig) -> list[Rule]:
        width, heads = config["d_model"], config["n_head"]
        return [
            SameTensor(WORDS, "embeddings.text.token.weight"),
            ReshapedTensor("transformer.mask_emb", "embeddings.query.vector", (1, 1, width), (1, width)),
            *(rule for i in range(config["n_layer"]) for rule in _layer(i, width, heads)),
            SameTensor("lm_loss.bias", "plm.bias"),
            Copy("lm_loss.weight", WORDS, "lm_loss.bias", own="plm.output.weight"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, first = described.streams["text"], described.layers[0]
        causal = described.visibilities == {"causal"}
        return {
            "architectures": ["XLNetLMHeadModel" if "plm" in described.heads else "XLNetModel"],
            "model_type": "xlnet",
            "vocab_size": text["vocab_size"],
            "d_model": text["hidden_size"],
            "n_layer": len(described.layers),
            "n_head": first["num_heads"],
            "d_head": text["hidden_size"] // first["num_heads"],
            "d_inner": first["intermediate_size"],
            "ff_activation": bert_config.THEIR_ACTIVATIONS.get(first["activation"], "gelu"),
            "layer_norm_eps": first["norm_eps"],
            "dropout": first["dropout"],
            "attn_type": "uni" if causal else "bi",
            "untie_r": True,
            "initializer_range": 0.02,
        }


def _activation(config: FamilyConfig) -> str:
    name = config.get("ff_activation", "gelu")
    if name not in bert_config.ACTIVATIONS:
        raise unknown("activation", name, bert_config.ACTIVATIONS, "ff_activation of the configuration")
    return bert_config.ACTIVATIONS[name]


def _layer(number: int, width: int, heads: int) -> list[Rule]:
    theirs, ours = f"transformer.layer.{number}", f"layers.{number}"
    at, block = f"{theirs}.rel_attn", f"{ours}.attention"
    score_bias = f"{block}.attention.score_bias"
    return [
        ByHead(tuple(f"{at}.{name}" for name in "qkv"), f"{block}.attention.qkv.weight", heads),
        ByHead((f"{at}.r",), f"{score_bias}.project.weight", heads),
        ReshapedTensor(f"{at}.o", f"{block}.attention.output.weight", (width, heads, width // heads), (width, width)),
        SameTensor(f"{at}.r_w_bias", f"{score_bias}.biases.content_bias"),
        SameTensor(f"{at}.r_r_bias", f"{score_bias}.biases.position_bias"),
        SameTensor(f"{at}.r_s_bias", f"{score_bias}.biases.segment_bias"),
        SameTensor(f"{at}.seg_embed", f"{score_bias}.segment"),
        *bert_names.both(f"{at}.layer_norm", f"{block}.residual.norm"),
        *bert_names.both(f"{theirs}.ff.layer_1", f"{ours}.feed_forward.network.inner"),
        *bert_names.both(f"{theirs}.ff.layer_2", f"{ours}.feed_forward.network.outer"),
        *bert_names.both(f"{theirs}.ff.layer_norm", f"{ours}.feed_forward.residual.norm"),
    ]
