"""Hugging Face Llama 2 and 3 (arXiv:2307.09288, arXiv:2407.21783), and all checkpoints of its class (SmolLM2).

Pre-norm with RMSNorm, gated feed-forward blocks, rotary positions, and keys and values of fewer heads. Families with
the same names and other options derive from this one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import unknown
from workbench.interop.bert_names import PARAMETERS
from workbench.interop.families.modernbert import GATED, THEIR_GATED
from workbench.interop.family import TIED, CheckpointFamily, FamilyConfig, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rope_config import rope_config, rotary_of
from workbench.interop.rules import Copy, Rule, SameTensor, Stack
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

WORDS, PREDICTED = "model.embed_tokens.weight", "lm_head.weight"


class Llama(CheckpointFamily):
    """Hugging Face Llama: a `text` stream, `self` layers with RMSNorm in front, kv_heads, rotary; a last `norm`; clm.

    Attributes:
        model_type, library: the names of its configuration and of its classes.
        base, eps: of rotary positions and of norms, where the configuration states none.
        tied: whether words are predicted by their table, where the configuration does not say so.
    """

    prefix = "model."
    model_type: ClassVar[str] = "llama"
    library: ClassVar[str] = "Llama"
    base: ClassVar[float] = 10_000.0
    eps: ClassVar[float] = 1e-6
    tied: ClassVar[bool] = False

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == self.model_type

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        return FamilyConfig({TIED: self.tied, **config})

    def network(self, config: FamilyConfig) -> NetworkSpec:
        eps = float(config.get("rms_norm_eps", self.eps))
        text = {
            "embedding": "token",
            "hidden_size": config["hidden_size"],
            "vocab_size": config["vocab_size"],
            "max_positions": None,
            "token_types": 0,
            "norm": None,
            "dropout": 0.0,
        }
        layers = [{**self.layer(config, eps), **own} for own in self.layers(config)]
        last = {"layer": "norm", "stream": "text", "norm": "rms", "norm_eps": eps}
        return NetworkSpec({"text": text}, [*layers, last])

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        """The options of all layers."""
        name, heads = config.get("hidden_act", "silu"), config["num_attention_heads"]
        if name not in GATED:
            raise unknown("activation", name, GATED, "hidden_act of the configuration")
        return {
            "layer": "self",
            "stream": "text",
            "num_heads": heads,
            "kv_heads": self.kv_heads(config),
            "inner_size": heads * self.head_size(config),
            "intermediate_size": config["intermediate_size"],
            "activation": GATED[name],
            "norm": "rms",
            "norm_place": "pre",
            "norm_eps": eps,
            "bias": bool(config.get("mlp_bias", False)),
            "attention_bias": bool(config.get("attention_bias", False)),
            **rotary_of(config, self.base),
            "dropout": 0.0,
            "attention_dropout": config.get("attention_dropout", 0.0),
        }

    def layers(self, config: FamilyConfig) -> list[Spec]:
        """The options of each layer in which it differs from others."""
        return [{} for _ in range(config["num_hidden_layers"])]

    def kv_heads(self, config: FamilyConfig) -> int:
        return int(config.get("num_key_value_heads") or config["num_attention_heads"])

    def head_size(self, config: FamilyConfig) -> int:
        return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"clm": token_head({TIED: self.tied, **config}, "clm")}

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def rules(self, config: FamilyConfig) -> list[Rule]:
        count, size = config["num_hidden_layers"], self.head_size(config)
        kv = size * self.kv_heads(config)
        rules: list[Rule] = [
            SameTensor(WORDS, "embeddings.text.token.weight"),
            SameTensor("model.norm.weight", f"layers.{count}.norm.weight"),
            Copy(PREDICTED, WORDS, own=f"{next(iter(self.heads(config)))}.output.weight"),
        ]
        for i in range(count):
            rules += _layer(f"model.layers.{i}", f"layers.{i}", (size * config["num_attention_heads"], kv, kv))
            rules += self.feed_forward(config, f"model.layers.{i}", f"layers.{i}.feed_forward.network")
        return rules

    def feed_forward(self, config: FamilyConfig, theirs: str, ours: str) -> list[Rule]:
        """The names of the feed-forward network of a layer."""
        rules: list[Rule] = []
        for p in PARAMETERS:
            rules.append(Stack(tuple(f"{theirs}.mlp.{n}.{p}" for n in ("gate_proj", "up_proj")), f"{ours}.inner.{p}"))
            rules.append(SameTensor(f"{theirs}.mlp.down_proj.{p}", f"{ours}.outer.{p}"))
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layers = described.streams["text"], described.layers[:-1]
        first, head = layers[0], next(iter(self.heads(FamilyConfig())))
        return {
            "architectures": [f"{self.library}{self.of_head if head in described.heads else 'Model'}"],
            "model_type": self.model_type,
            "vocab_size": text["vocab_size"],
            "hidden_size": text["hidden_size"],
            "intermediate_size": first["intermediate_size"],
            "num_hidden_layers": len(layers),
            "num_attention_heads": first["num_heads"],
            "num_key_value_heads": first["kv_heads"],
            "head_dim": first["inner_size"] // first["num_heads"],
            "hidden_act": THEIR_GATED.get(first["activation"], "silu"),
            "rms_norm_eps": first["norm_eps"],
            "attention_bias": first["attention_bias"],
            "mlp_bias": first["bias"],
            "attention_dropout": first["attention_dropout"],
            TIED: described.heads.get(head, {}).get("head.tied", True),
            **rope_config(next((layer for layer in layers if layer["rotary"] is not None), first)),
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        }

    of_head: ClassVar[str] = "ForCausalLM"
    """The name of the class with the head, behind `library`."""


def _layer(theirs: str, ours: str, sizes: tuple[int, ...]) -> list[Rule]:
    """The names of a layer without its feed-forward network; which biases there are is decided by the weights."""
    attention, feed = f"{ours}.attention", f"{ours}.feed_forward"
    pairs = {
        f"{theirs}.self_attn.o_proj": f"{attention}.attention.output",
        f"{theirs}.self_attn.q_norm": f"{attention}.attention.query_norm",
        f"{theirs}.self_attn.k_norm": f"{attention}.attention.key_norm",
        f"{theirs}.input_layernorm": f"{attention}.residual.norm",
        f"{theirs}.post_attention_layernorm": f"{feed}.residual.norm",
    }
    rules: list[Rule] = []
    for p in PARAMETERS:
        qkv = tuple(f"{theirs}.self_attn.{n}_proj.{p}" for n in "qkv")
        rules.append(Stack(qkv, f"{attention}.attention.qkv.{p}", sizes=sizes))
        rules += [SameTensor(f"{one}.{p}", f"{other}.{p}") for one, other in pairs.items()]
    return rules
