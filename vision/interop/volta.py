"""Weights and configurations of VOLTA (github.com/e-bug/volta, arXiv:2011.15124) as our stacks.

VOLTA numbers sublayers and says of each which modality attends to which (tt, tv, vt, vv: queries to keys, t = text,
v = vision) and which has a feed-forward block. Its ViLBERT, LXMERT, UNITER and VisualBERT are these stacks of ours:

    all four, shared weights   joint(text, image)
    tv and vt                  co(text, image)
    tt, vv                     self(text), self(image)

Matching labels are reversed: VOLTA has 0 = matched, we have 1. Its poolers have ReLU where ours have tanh, and a width
of their own, so poolers and matching heads are not converted; of the region heads the regression (target 5) is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vision.interop.uniter import both, fused
from workbench.errors import WorkbenchError, unknown
from workbench.interop.names import Rename, Rule, convert
from workbench.recipe.spec import NetworkSpec, Spec

_MODALITY = {"text": "", "image": "v_"}
_VARIANTS: dict[str, Spec] = {
    "lxmert": {"average": True, "norm_sum": False, "type_vector": False},
    "vilbert": {"norm_parts": False, "type_vector": False},
    "uniter": {},
    "visualbert": {"norm_parts": False},
}
_IMAGE_NAMES = {
    "lxmert": (
        "bert.v_embeddings",
        "image_embeddings",
        "ImgLayerNorm",
        "image_location_embeddings",
        "LocLayerNorm",
        "",
    ),
    "vilbert": ("bert.v_embeddings", "image_embeddings", "", "image_location_embeddings", "", "LayerNorm"),
    "uniter": (
        "bert.embeddings",
        "image_embeddings",
        "image_layer_norm",
        "image_location_embeddings",
        "image_location_layer_norm",
        "v_LayerNorm",
    ),
    "visualbert": ("bert.embeddings", "projection", "", "", "", ""),
}


@dataclass
class _Stack:
    """Our layers, and the rules that fill them, as they are found."""

    config: Mapping[str, Any]
    specs: list[Spec] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)

    def add(self, layer: Spec) -> str:
        common = {
            "dropout": self.config["hidden_dropout_prob"],
            "attention_dropout": self.config["attention_probs_dropout_prob"],
            "activation": self.config["hidden_act"],
        }
        self.specs.append({**layer, **common})
        return f"layers.{len(self.specs) - 1}"

    def has(self, key: str, sublayer: int) -> bool:
        return sublayer in self.config[key]

    def self_layer(self, n: int, stream: str, joint: bool = False) -> None:
        """Attention sublayer n of one modality (or of both as one sequence), and feed-forward sublayer n + 1."""
        v = _MODALITY[stream]
        kind = {"layer": "joint", "streams": ["text", "image"]} if joint else {"layer": "self", "stream": stream}
        size = {
            "num_heads": self.config[f"{v}num_attention_heads"],
            "intermediate_size": self.config[f"{v}intermediate_size"],
        }
        ours = self.add({**kind, **size})
        theirs = f"bert.encoder.layer.{n}"
        names = tuple(f"{theirs}.attention_self.{v}{part}" for part in ("query", "key", "value"))
        self.rules += fused(names, f"{ours}.attention.attention.qkv")
        self.rules += both(f"{theirs}.attention_output.{v}dense", f"{ours}.attention.attention.output")
        self.rules += both(f"{theirs}.attention_output.{v}LayerNorm", f"{ours}.attention.residual.norm")
        self.feed_forward(n + 1, v, f"{ours}.feed_forward")

    def co_layer(self, n: int) -> None:
        """Attention sublayer n in which each modality reads the other, and sublayer n + 1 where it is feed-forward."""
        follows = self.has("t_ff_sublayers", n + 1)
        widths = {"text": self.config["intermediate_size"], "image": self.config["v_intermediate_size"]}
        ours = self.add(
            {
                "layer": "co",
                "streams": ["text", "image"],
                "num_heads": self.config["sublayer2num_attention_heads"].get(
                    str(n), self.config["num_attention_heads"]
                ),
                "inner_size": self.config["sublayer2attn_hidden_size"].get(str(n), self.config["hidden_size"]),
                "shared": self.has("shared_sublayers", n),
                "feed_forward": follows,
                "intermediate_sizes": widths,
            }
        )
        theirs = f"bert.encoder.layer.{n}"
        for stream, other in (("text", "image"), ("image", "text")):
            v, w = _MODALITY[stream], _MODALITY[other]
            attention = f"{ours}.attention.{stream}"
            keys = tuple(f"{theirs}.attention_self.{w}{part}" for part in ("key", "value"))
            self.rules += both(f"{theirs}.attention_self.{v}query", f"{attention}.attention.query")
            self.rules += fused(keys, f"{attention}.attention.key_value")
            self.rules += both(f"{theirs}.attention_output.{v}dense", f"{attention}.attention.output")
            self.rules += both(f"{theirs}.attention_output.{v}LayerNorm", f"{attention}.residual.norm")
            if follows:
                self.feed_forward(n + 1, v, f"{ours}.feed_forward.{stream}")

    def feed_forward(self, n: int, v: str, ours: str) -> None:
        theirs = f"bert.encoder.layer.{n}"
        self.rules += both(f"{theirs}.intermediate.{v}dense", f"{ours}.network.inner")
        self.rules += both(f"{theirs}.output.{v}dense", f"{ours}.network.outer")
        self.rules += both(f"{theirs}.output.{v}LayerNorm", f"{ours}.residual.norm")


def network_spec(config: Mapping[str, Any]) -> NetworkSpec:
    """The network that a VOLTA configuration describes.

    Raises:
        WorkbenchError: a combination of sublayers that is none of the stacks above.
    """
    text = {
        "embedding": "token",
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "max_positions": config["max_position_embeddings"],
        "dropout": config["hidden_dropout_prob"],
    }
    image = {
        "embedding": "vision.regions",
        "hidden_size": config["v_hidden_size"],
        "feature_size": config["v_feature_size"],
        "box_size": 0 if _kind(config) == "visualbert" else config["num_locs"],
        "mask_vector": False,
        **_VARIANTS[_kind(config)],
    }
    return NetworkSpec(streams={"text": text, "image": image}, layers=_stack(config).specs)


def from_volta(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """A VOLTA state dict under our names (network, `mlm.*`, `mrfr.*`), and the names that we have no place for."""
    ours, left = convert(state, [*_embedding_rules(_kind(config)), *_stack(config).rules])
    kind = _kind(config)
    if kind == "uniter":
        ours["embeddings.image.type_vector"] = state["bert.embeddings.image_token_type_embeddings.weight"][1].clone()
    if kind == "visualbert":
        visual = state["bert.embeddings.token_type_embeddings_visual.weight"][1]
        ours["embeddings.image.type_vector"] = visual + state["bert.embeddings.position_embeddings_visual.weight"][0]
        for p in ("weight", "bias"):  # one norm for both modalities
            ours[f"embeddings.image.norm.{p}"] = state[f"bert.embeddings.LayerNorm.{p}"].clone()
    return ours, left


def _kind(config: Mapping[str, Any]) -> str:
    kind = config["image_embeddings"]
    if kind not in _VARIANTS:
        raise unknown("VOLTA image embedding", kind, _VARIANTS)
    return kind


def _stack(config: Mapping[str, Any]) -> _Stack:
    stack = _Stack(config)
    directions = ("tt", "tv", "vt", "vv")
    numbers = sorted({n for d in directions for n in config[f"{d}_attn_sublayers"]})
    for n in numbers:
        found = {d for d in directions if stack.has(f"{d}_attn_sublayers", n)}
        if found == set(directions) and stack.has("shared_sublayers", n):
            stack.self_layer(n, "text", joint=True)
        elif found == {"tv", "vt"}:
            stack.co_layer(n)
        elif found <= {"tt", "vv"}:
            for stream in [s for d, s in (("tt", "text"), ("vv", "image")) if d in found]:
                stack.self_layer(n, stream)
        else:
            raise WorkbenchError(
                f"VOLTA sublayer {n} attends {sorted(found)}; our layers are tt, vv, tv + vt, or all shared"
            )
    return stack


def _embedding_rules(kind: str) -> list[Rule]:
    place, project, feature_norm, box, box_norm, norm = _IMAGE_NAMES[kind]
    named = {"project": project, "feature_norm": feature_norm, "box": box, "box_norm": box_norm, "norm": norm}
    image = [
        rule
        for ours, theirs in named.items()
        if theirs
        for rule in both(f"{place}.{theirs}", f"embeddings.image.{ours}")
    ]
    return [
        Rename("bert.embeddings.word_embeddings.weight", "embeddings.text.token.weight"),
        Rename("bert.embeddings.position_embeddings.weight", "embeddings.text.position.weight"),
        Rename("bert.embeddings.token_type_embeddings.weight", "embeddings.text.token_type.weight"),
        *both("bert.embeddings.LayerNorm", "embeddings.text.norm"),
        *image,
        Rename("cls.predictions.bias", "mlm.bias"),
        *both("cls.predictions.transform.dense", "mlm.dense"),
        *both("cls.predictions.transform.LayerNorm", "mlm.norm"),
        *both("cls.imagePredictions.transform.dense", "mrfr.dense"),
        *both("cls.imagePredictions.transform.LayerNorm", "mrfr.norm"),
        Rename("cls.imagePredictions.decoder_dict.5.weight", "mrfr.output.weight"),
        Rename("cls.imagePredictions.decoder_dict.5.bias", "mrfr.bias"),
    ]
