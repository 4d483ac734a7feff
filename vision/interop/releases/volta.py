"""VOLTA's release (github.com/e-bug/volta; Bugliarello et al., arXiv:2011.15124): ViLBERT, LXMERT, UNITER, VisualBERT.

VOLTA numbers sublayers and says of each which modality attends to which (tt, tv, vt, vv: queries to keys, t = text,
v = vision) and which has a feed-forward block. In our stacks:

    all four, shared weights   joint(text, image)
    tv and vt                  co(text, image)
    tt, vv                     self(text), self(image)

Its poolers have relu where ours have tanh, and a width of their own, so poolers and matching heads have no place; of
the region heads the regression (target 5) has. What its VL-BERT adds to words and regions is no embedding of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vision.interop import volta_sublayers
from vision.interop.region_streams import IMAGE, regions
from workbench.errors import unknown
from workbench.interop import bert_config
from workbench.interop.bert_names import both, embeddings, word_head
from workbench.interop.described import Described
from workbench.interop.release import Config, Release
from workbench.interop.rules import Rows, Rule, Same, Sum
from workbench.recipe.spec import NetworkSpec, Spec

VARIANTS: dict[str, Spec] = {
    "lxmert": {"average": True, "norm_sum": False, "type_vector": False},
    "vilbert": {"norm_parts": False, "type_vector": False},
    "uniter": {},
    "visualbert": {"norm_parts": False},
}
"""`image_embeddings` of the configuration, and how our embedding of regions says it."""
NAMES = {
    "lxmert": {
        "project": "bert.v_embeddings.image_embeddings",
        "feature_norm": "bert.v_embeddings.ImgLayerNorm",
        "box": "bert.v_embeddings.image_location_embeddings",
        "box_norm": "bert.v_embeddings.LocLayerNorm",
    },
    "vilbert": {
        "project": "bert.v_embeddings.image_embeddings",
        "box": "bert.v_embeddings.image_location_embeddings",
        "norm": "bert.v_embeddings.LayerNorm",
    },
    "uniter": {
        "project": "bert.embeddings.image_embeddings",
        "feature_norm": "bert.embeddings.image_layer_norm",
        "box": "bert.embeddings.image_location_embeddings",
        "box_norm": "bert.embeddings.image_location_layer_norm",
        "norm": "bert.embeddings.v_LayerNorm",
    },
    "visualbert": {"project": "bert.embeddings.projection"},
}


class Volta(Release):
    """VOLTA's ViLBERT, LXMERT, UNITER and VisualBERT: `text` and `image` streams; heads mlm and mrfr (not tied)."""

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return "tt_attn_sublayers" in config

    def network(self, config: Config) -> NetworkSpec:
        kind = _kind(config)
        boxes = 0 if kind == "visualbert" else config["num_locs"]
        variant = {"box_size": boxes, "mask_vector": False, **VARIANTS[kind]}
        image = regions(config["v_hidden_size"], config["v_feature_size"], config, **variant)
        text = bert_config.text_stream(config)
        layers = [volta_sublayers.layer(config, sublayer) for sublayer in volta_sublayers.read(config)]
        tie = {"image.norm": "text.norm"} if kind == "visualbert" else {}
        return NetworkSpec({"text": text, "image": image}, layers, tie=tie)

    def heads(self, config: Config) -> dict[str, Spec]:
        return {
            "mlm": bert_config.word_head(config, norm_eps=1e-12),
            "mrfr": {"objective": "vision.mrfr", "tied": False},
        }

    def rules(self, config: Config) -> list[Rule]:
        kind = _kind(config)
        regression = "cls.imagePredictions.decoder_dict.5"
        return [
            *embeddings("bert.embeddings"),
            *(rule for ours, theirs in NAMES[kind].items() for rule in both(theirs, f"{IMAGE}.{ours}")),
            *_types(kind, config),
            *(
                rule
                for number, sublayer in enumerate(volta_sublayers.read(config))
                for rule in volta_sublayers.rules(config, sublayer, f"layers.{number}")
            ),
            *word_head("bert.embeddings.word_embeddings.weight"),
            *both("cls.imagePredictions.transform.dense", "mrfr.dense"),
            *both("cls.imagePredictions.transform.LayerNorm", "mrfr.norm"),
            Same(f"{regression}.weight", "mrfr.output.weight"),
            Same(f"{regression}.bias", "mrfr.bias"),
        ]

    def config(self, described: Described) -> dict[str, Any]:
        text, image = described.streams["text"], described.streams["image"]
        written = volta_sublayers.written(described)
        kind = next((k for k, v in VARIANTS.items() if _said(image, v, k)), "uniter")
        widths = {"v_hidden_size": image["hidden_size"], "v_feature_size": image["feature_size"]}
        return {
            **bert_config.config_of(text, {**described.layers[0], **written.text}),
            **written.config,
            **widths,
            "image_embeddings": kind,
            "num_locs": image["box_size"],
        }


def _kind(config: Config) -> str:
    kind = config["image_embeddings"]
    if kind not in VARIANTS:
        raise unknown("VOLTA image embedding", kind, VARIANTS)
    return str(kind)


def _said(image: Spec, variant: Spec, kind: str) -> bool:
    """Whether our options of an embedding are a variant's."""
    plain = {"average": False, "norm_sum": True, "type_vector": True, "norm_parts": True}
    return all(image[key] == value for key, value in {**plain, **variant}.items()) and (
        (kind == "visualbert") == (image["box_size"] == 0)
    )


def _types(kind: str, config: Config) -> list[Rule]:
    """The vector that is added to every region, which is a row of a table."""
    types, positions = config.get("type_vocab_size", 2), config["max_position_embeddings"]
    vector = f"{IMAGE}.type_vector"
    if kind == "uniter":
        return [Rows("bert.embeddings.image_token_type_embeddings.weight", ((vector, 1),), 2)]
    if kind == "visualbert":
        tables = (("token_type_embeddings_visual", 1, types), ("position_embeddings_visual", 0, positions))
        return [Sum(tuple((f"bert.embeddings.{name}.weight", row, rows) for name, row, rows in tables), vector)]
    return []
