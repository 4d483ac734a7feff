"""Hugging Face BART (Lewis et al., arXiv:1910.13461): an encoder on `text`, a decoder on `target`, post-norm.

Positions are counted from 2, as in RoBERTa, with a table for each side. Both sides have one table of words, which is
also the decoder's matrix. Their bias `final_logits_bias` is no parameter, and zero; another one is not supported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.bert_config import ACTIVATIONS, THEIR_ACTIVATIONS
from workbench.interop.bert_names import both, stacked
from workbench.interop.family import CheckpointFamily, FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

UNUSED = 2
EPS = 1e-5
STACKS = {"encoder": "text", "decoder": "target"}


class Bart(CheckpointFamily):
    """Hugging Face BART: a `text` and a `target` stream, `self` and `cross` layers; head denoising."""

    prefix = "model."
    library: ClassVar[str] = "Bart"
    """The prefix of the names of their library's classes."""
    between: ClassVar[int] = 0
    """The number of layers between the encoder and the decoder here."""

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == self.library.lower()

    def network(self, config: FamilyConfig) -> NetworkSpec:
        token = {
            "embedding": "token",
            "hidden_size": config["d_model"],
            "vocab_size": config["vocab_size"],
            "max_positions": config["max_position_embeddings"],
            "token_types": 0,
            "dropout": config.get("dropout", 0.1),
            "norm_eps": EPS,
            "scaled": bool(config.get("scale_embedding")),
        }
        encoder = {**_block(config, "encoder"), "layer": "self", "stream": "text"}
        decoder = {**_block(config, "decoder"), "layer": "cross", "stream": "target", "to": "text"}
        layers = [
            {**encoder, "repeat": config["encoder_layers"]},
            {**decoder, "repeat": config["decoder_layers"]},
        ]
        return NetworkSpec({"text": dict(token), "target": dict(token)}, layers, tie={"target.token": "text.token"})

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        noises = [{"noise": "permute", "rate": 1.0}, {"noise": "infill", "rate": 0.3}]  # (section 4 of the paper)
        return {"denoising": {**token_head(config, "denoising"), "noises": noises}}

    def task(self, config: FamilyConfig) -> Spec:
        """The task. Masks for empty spans make a text longer: a quarter of the positions is left for them."""
        length = min(512, config["max_position_embeddings"] * 3 // 4)
        task = super().task(config)
        return {**task, "sequence": {**task["sequence"], "max_length": length}}

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        bias = state.get("final_logits_bias")
        if bias is not None and bias.any():
            raise WorkbenchError(
                f"final_logits_bias is not zero (up to {float(bias.abs().max()):.3g}); the decoder here adds no bias "
                "to its scores, so its predictions would differ: use weights of BART itself, whose bias is zero"
            )
        return config

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rows, encoder = config["max_position_embeddings"] + UNUSED, config["encoder_layers"] + self.between
        rules: list[Rule] = [
            SameTensor("model.shared.weight", "embeddings.text.token.weight"),
            Copy("lm_head.weight", "model.shared.weight", own="denoising.output.weight"),
            Buffer("final_logits_bias"),
        ]
        for stack, stream in STACKS.items():
            ours = f"embeddings.{stream}"
            rules += [
                Copy(f"model.{stack}.embed_tokens.weight", "model.shared.weight"),
                RowRanges(
                    f"model.{stack}.embed_positions.weight", ((f"{ours}.position.weight", (UNUSED, rows)),), rows
                ),
                *both(f"model.{stack}.layernorm_embedding", f"{ours}.norm"),
            ]
        for i in range(config["encoder_layers"]):
            theirs, ours = f"model.encoder.layers.{i}", f"layers.{i}"
            rules += [*_self(theirs, f"{ours}.attention"), *_feed_forward(theirs, ours)]
        for i in range(config["decoder_layers"]):
            theirs, ours = f"model.decoder.layers.{i}", f"layers.{encoder + i}"
            rules += [*_self(theirs, f"{ours}.self_attention"), *_cross(theirs, f"{ours}.cross_attention")]
            rules += _feed_forward(theirs, ours)
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text = described.streams["text"]
        blocks = [one for one in described.layers if "num_heads" in one]
        stacks = [[one for one in blocks if one["stream"] == stream] for stream in STACKS.values()]
        encoder, decoder = (stack[0] for stack in stacks)
        return {
            "architectures": [
                self.library + ("ForConditionalGeneration" if "denoising" in described.heads else "Model")
            ],
            "model_type": self.library.lower(),
            "vocab_size": text["vocab_size"],
            "d_model": text["hidden_size"],
            "max_position_embeddings": text["max_positions"],
            "encoder_layers": len(stacks[0]),
            "decoder_layers": len(stacks[1]),
            "encoder_attention_heads": encoder["num_heads"],
            "decoder_attention_heads": decoder["num_heads"],
            "encoder_ffn_dim": encoder["intermediate_size"],
            "decoder_ffn_dim": decoder["intermediate_size"],
            "activation_function": THEIR_ACTIVATIONS.get(encoder["activation"], "gelu"),
            "dropout": text["dropout"],
            "attention_dropout": encoder["attention_dropout"],
            "scale_embedding": text["scaled"],
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        }


def _block(config: FamilyConfig, stack: str) -> Spec:
    name = config.get("activation_function", "gelu")
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS, "activation_function of the configuration")
    return {
        "num_heads": config[f"{stack}_attention_heads"],
        "intermediate_size": config[f"{stack}_ffn_dim"],
        "activation": ACTIVATIONS[name],
        "norm_eps": EPS,
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
    }


def _self(theirs: str, ours: str) -> list[Rule]:
    qkv = tuple(f"{theirs}.self_attn.{name}_proj" for name in "qkv")
    return [
        *stacked(qkv, f"{ours}.attention.qkv"),
        *both(f"{theirs}.self_attn.out_proj", f"{ours}.attention.output"),
        *both(f"{theirs}.self_attn_layer_norm", f"{ours}.residual.norm"),
    ]


def _cross(theirs: str, ours: str) -> list[Rule]:
    return [
        *both(f"{theirs}.encoder_attn.q_proj", f"{ours}.attention.query"),
        *stacked(tuple(f"{theirs}.encoder_attn.{name}_proj" for name in "kv"), f"{ours}.attention.key_value"),
        *both(f"{theirs}.encoder_attn.out_proj", f"{ours}.attention.output"),
        *both(f"{theirs}.encoder_attn_layer_norm", f"{ours}.residual.norm"),
    ]


def _feed_forward(theirs: str, ours: str) -> list[Rule]:
    return [
        *both(f"{theirs}.fc1", f"{ours}.feed_forward.network.inner"),
        *both(f"{theirs}.fc2", f"{ours}.feed_forward.network.outer"),
        *both(f"{theirs}.final_layer_norm", f"{ours}.feed_forward.residual.norm"),
    ]
