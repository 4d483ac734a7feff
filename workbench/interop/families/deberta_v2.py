"""Hugging Face DeBERTa v2 and v3 (He et al., arXiv:2006.03654, arXiv:2111.09543): scores by disentangled attention.

Relative positions go through the matrices of each layer (`share_att_key`), from one table for the stack. The library
has two heads of masked words, which compute the same: that of BERT's names (`legacy`), and that of the published files
(`lm_predictions`). It has no head of replaced tokens, which stays outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription, spelt_out
from workbench.interop.rules import Buffer, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

WORDS = "deberta.embeddings.word_embeddings.weight"
PUBLISHED = "lm_predictions.lm_head"
TERMS = {"both": ["p2c", "c2p"], "p2c": ["p2c"], "c2p": ["c2p"]}
STATED = {"relative_attention": True, "share_att_key": True}
"""Keys without which its code computes something else than the network here, with the values that are supported."""


class DebertaV2(CheckpointFamily):
    """Hugging Face DeBERTa v2 and v3: a `text` stream with `self` layers and the score bias `disentangled`; head
    mlm."""

    prefix = "deberta."
    task_heads = TaskHeads("DebertaV2", "pooler.dense", settings={"pooler_hidden_act": "gelu"})

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "deberta-v2"

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        """The configuration, which says by which names masked words are predicted; published ones do not."""
        published = any(name.startswith(PUBLISHED) for name in state)
        return FamilyConfig({**config, "legacy": False}) if published else config

    def network(self, config: FamilyConfig) -> NetworkSpec:
        _check(config)
        rows = config.get("max_position_embeddings", 512)
        positions = rows if config.get("position_biased_input", True) else None
        types = config.get("type_vocab_size", 0)
        text = bert_config.text_stream(config, max_positions=positions, token_types=types, norm_eps=_eps(config))
        farthest, buckets = config.get("max_relative_positions", -1), config.get("position_buckets", -1)
        score_bias = {
            "score_bias": "disentangled",
            "max_distance": farthest if farthest > 0 else rows,
            "num_buckets": buckets if buckets > 0 else None,
            "terms": _terms(config),
            "norm_eps": _eps(config) if _has_norm(config) else None,
            "dropout": config.get("hidden_dropout_prob", 0.1),
        }
        layer = {"layer": "self", "stream": "text", "score_bias": score_bias, **bert_config.block(config)}
        stack = {**layer, "norm_eps": _eps(config), "repeat": config["num_hidden_layers"], "share": "positions"}
        return NetworkSpec({"text": text}, [stack])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config, norm_eps=_eps(config))}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        positions = "layers.0.attention.attention.score_bias.positions"
        return [
            *bert_names.embeddings("deberta.embeddings"),
            SameTensor("deberta.encoder.rel_embeddings.weight", f"{positions}.table.weight"),
            *bert_names.both("deberta.encoder.LayerNorm", f"{positions}.norm"),
            *(
                rule
                for i in range(config["num_hidden_layers"])
                for rule in _layer(f"deberta.encoder.layer.{i}", f"layers.{i}")
            ),
            *_word_head(config),
            Buffer("deberta.embeddings.position_ids"),
        ]

    def pooler(self, config: FamilyConfig) -> Spec:
        return {"activation": "gelu"}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, first = described.streams["text"], described.layers[0]
        bias = first["score_bias"] or {}
        farthest = bias.get("max_distance", 512)
        return {
            **bert_config.config_of(text, first),
            "architectures": ["DebertaV2ForMaskedLM" if "mlm" in described.heads else "DebertaV2Model"],
            "model_type": "deberta-v2",
            "num_hidden_layers": len(described.layers),
            "max_position_embeddings": text["max_positions"] or farthest,
            "position_biased_input": text["max_positions"] is not None,
            "relative_attention": True,
            "share_att_key": True,
            "max_relative_positions": farthest,
            "position_buckets": bias.get("num_buckets") or -1,
            "pos_att_type": TERMS[bias.get("terms", "both")],
            "norm_rel_ebd": "none" if bias.get("norm_eps") is None else "layer_norm",
        }

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """A table that is the sum of the generator's and its own as one.

        Raises:
            WorkbenchError: a head predicts words by the generator's table alone.
        """
        text = described.streams["text"]
        if text["embedding"] != KINDS["embedding"].path("delta_token"):
            return described, state
        if described.heads.get("mlm", {}).get("head.tied"):
            raise WorkbenchError(
                "the head mlm is tied to the first table of delta_token, and the library's to the sum of both; export "
                "a network without this head, or train it with head: {tied: false}"
            )
        usual = spelt_out("embedding", "token", {})
        streams = {**described.streams, "text": {**usual, **text, "embedding": usual["embedding"]}}
        streams["text"].pop("init_range")
        streams["text"]["embedding_size"] = text["hidden_size"]
        tie = {ours: other for ours, other in described.tie.items() if ours != "text.token"}
        words, own = "embeddings.text.token.weight", "embeddings.text.delta.weight"
        tensors = {name: tensor for name, tensor in state.items() if name != own}
        return described._replace(streams=streams, tie=tie), {**tensors, words: state[words] + state[own]}


def _check(config: FamilyConfig) -> None:
    """Check that the network of a configuration can be described.

    Raises:
        WorkbenchError: it has layers or maps that no component has.
    """
    width = config["hidden_size"]
    other = {"embedding_size": width, "attention_head_size": width // config["num_attention_heads"]}
    for key, wanted in {**STATED, "conv_kernel_size": 0, **other}.items():
        found = config[key] if key in STATED else config.get(key, wanted)
        if found != wanted:
            raise WorkbenchError(f"{key} = {found} is not supported; supported: {wanted}")


def _eps(config: FamilyConfig) -> float:
    return float(config.get("layer_norm_eps", 1e-7))


def _has_norm(config: FamilyConfig) -> bool:
    return "layer_norm" in [name.strip() for name in str(config.get("norm_rel_ebd", "none")).lower().split("|")]


def _terms(config: FamilyConfig) -> str:
    stated = config["pos_att_type"] or []
    kinds = {kind.strip() for kind in (stated.lower().split("|") if isinstance(stated, str) else stated)}
    found = next((name for name, terms in TERMS.items() if {*terms} == kinds), None)
    if found is None:
        raise WorkbenchError(f"pos_att_type = {stated!r} is not supported; supported: c2p, p2c, or both")
    return found


def _word_head(config: FamilyConfig) -> list[Rule]:
    if config.get("legacy", True):
        return [*bert_names.word_head(WORDS), bert_names.decoder_bias()]
    maps = [*bert_names.both(f"{PUBLISHED}.dense", "mlm.dense"), *bert_names.both(f"{PUBLISHED}.LayerNorm", "mlm.norm")]
    return [*maps, SameTensor(f"{PUBLISHED}.bias", "mlm.bias")]


def _layer(theirs: str, ours: str) -> list[Rule]:
    attention = f"{theirs}.attention"
    qkv = tuple(f"{attention}.self.{name}_proj" for name in bert_names.QKV)
    return [
        *bert_names.stacked(qkv, f"{ours}.attention.attention.qkv"),
        *bert_names.both(f"{attention}.output.dense", f"{ours}.attention.attention.output"),
        *bert_names.both(f"{attention}.output.LayerNorm", f"{ours}.attention.residual.norm"),
        *bert_names.feed_forward(f"{theirs}.intermediate", f"{theirs}.output", f"{ours}.feed_forward"),
    ]
