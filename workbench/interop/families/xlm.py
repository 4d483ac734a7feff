"""Hugging Face XLM (Conneau and Lample, arXiv:1901.07291): a vector of its language is added to every token.

The word head is the table of words with a bias, and nothing before it. `causal` makes a text be read from left to
right. Positions of a fixed formula (`sinusoidal_embeddings`) are stored in the weights, and are read as learned ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.bert_names import both, stacked
from workbench.interop.family import CheckpointFamily, FamilyConfig, TaskHeads, token_head
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

OURS = "embeddings.text"
LANGUAGES = "language_ids"
WORDS = "transformer.embeddings.weight"


class Xlm(CheckpointFamily):
    """Hugging Face XLM: a `text` stream, with languages in `extra`, and `self` layers; head mlm, or clm if causal."""

    prefix = "transformer."
    task_heads = TaskHeads(
        "XLM",
        "",
        output="sequence_summary.summary",
        questions="QuestionAnsweringSimple",
        settings={"summary_type": "first", "summary_use_proj": True, "summary_activation": None},
        without=frozenset({"multiple_choice"}),
    )

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "xlm"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        if config.get("asm"):
            raise WorkbenchError("asm = true is not supported: no head here has an adaptive softmax")
        if not config.get("is_encoder", True):
            raise WorkbenchError("is_encoder = false: a decoder reads an encoder, which its files don't describe")
        eps, dropout = float(config.get("layer_norm_eps", 1e-12)), config.get("dropout", 0.1)
        text = {
            "embedding": "token",
            "hidden_size": config["emb_dim"],
            "vocab_size": config["vocab_size" if "vocab_size" in config else "n_words"],
            "max_positions": config.get("max_position_embeddings", 512),
            "token_types": 0,
            "dropout": dropout,
            "norm_eps": eps,
            "extra": {LANGUAGES: config["n_langs"]} if _languages(config) else None,
        }
        layer = {
            "layer": "self",
            "stream": "text",
            "num_heads": config["n_heads"],
            "intermediate_size": 4 * config["emb_dim"],
            "activation": "gelu" if config.get("gelu_activation", True) else "relu",
            "norm_eps": eps,
            "dropout": dropout,
            "attention_dropout": config.get("attention_dropout", 0.1),
        }
        return NetworkSpec({"text": text}, [{**layer, "repeat": config["n_layers"]}])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        if config.get("causal"):
            return {"clm": token_head(config, "clm", bias=True)}
        return {"mlm": token_head(config, "mlm", transform=None)}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        head = next(iter(self.heads(config)))
        rules: list[Rule] = [
            SameTensor(WORDS, f"{OURS}.token.weight"),
            SameTensor("transformer.position_embeddings.weight", f"{OURS}.position.weight"),
            *both("transformer.layer_norm_emb", f"{OURS}.norm"),
            SameTensor("pred_layer.proj.bias", f"{head}.bias"),
            Copy("pred_layer.proj.weight", WORDS, "pred_layer.proj.bias", own=f"{head}.output.weight"),
            Buffer("transformer.position_ids"),
        ]
        if _languages(config):
            rules.append(SameTensor("transformer.lang_embeddings.weight", f"{OURS}.extra.{LANGUAGES}.weight"))
        for i in range(config["n_layers"]):
            attention, feed_forward = f"layers.{i}.attention", f"layers.{i}.feed_forward"
            theirs = f"transformer.attentions.{i}"
            rules += [
                *stacked(tuple(f"{theirs}.{name}_lin" for name in "qkv"), f"{attention}.attention.qkv"),
                *both(f"{theirs}.out_lin", f"{attention}.attention.output"),
                *both(f"transformer.layer_norm1.{i}", f"{attention}.residual.norm"),
                *both(f"transformer.ffns.{i}.lin1", f"{feed_forward}.network.inner"),
                *both(f"transformer.ffns.{i}.lin2", f"{feed_forward}.network.outer"),
                *both(f"transformer.layer_norm2.{i}", f"{feed_forward}.residual.norm"),
            ]
        return rules

    def pooler(self, config: FamilyConfig) -> Spec:
        """The state of the first token as it is."""
        return {"dense": False, "activation": None}

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal" if config.get("causal") else "bidirectional"

    def sequence(self, config: FamilyConfig) -> Spec:
        """A text between two of its end tokens, by default in the language `lang_id`."""
        spec = {"builder": "document", "begin": "sep", "end": "sep", "visibility": self.visibility(config)}
        if not _languages(config):
            return spec
        names = config.get("lang2id") or {str(number): number for number in range(config["n_langs"])}
        languages = sorted(names, key=lambda name: int(names[name]))
        default = languages[config.get("lang_id", 0)]
        return {**spec, "transforms": [{"transform": "languages", "languages": languages, "default": default}]}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, layer = described.streams["text"], described.layers[0]
        languages = (text["extra"] or {}).get(LANGUAGES, 1)
        return {
            "architectures": ["XLMWithLMHeadModel" if {"mlm", "clm"} & described.heads.keys() else "XLMModel"],
            "model_type": "xlm",
            "vocab_size": text["vocab_size"],
            "emb_dim": text["hidden_size"],
            "n_layers": len(described.layers),
            "n_heads": layer["num_heads"],
            "max_position_embeddings": text["max_positions"],
            "n_langs": languages,
            "use_lang_emb": languages > 1,
            "gelu_activation": layer["activation"] == "gelu",
            "sinusoidal_embeddings": False,
            "causal": described.visibilities == {"causal"},
            "asm": False,
            "dropout": text["dropout"],
            "attention_dropout": layer["attention_dropout"],
            "layer_norm_eps": text["norm_eps"],
            "pad_token_id": 0,
        }


def _languages(config: FamilyConfig) -> bool:
    return bool(config.get("use_lang_emb", True) and config.get("n_langs", 1) > 1)
