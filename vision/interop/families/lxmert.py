"""Hugging Face LXMERT (Tan & Bansal, arXiv:1908.07490): two encoders, then layers in which each reads the other.

Both directions of the cross-attention have the same weights. Labels of matching agree: 1 = matched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vision.interop.caption_recipe import REGIONS, captions
from vision.interop.region_streams import IMAGE, answer_head, regions
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

BOXES = "lxmert.encoder.visn_fc"


class Lxmert(CheckpointFamily):
    """Hugging Face LXMERT: `text` and `image` streams, `self` and `co` layers; heads mlm, itm, mrfr, objects and
    attributes (mrc of mrfr's rows), answers."""

    prefix = "lxmert."
    corpus = "image-text-regions"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "lxmert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        image = regions(
            config["hidden_size"],
            config["visual_feat_dim"],
            config,
            box_size=config["visual_pos_dim"],
            average=True,
            norm_sum=False,
            type_vector=False,
            mask_vector=False,
        )
        block = bert_config.block(config)
        text, objects = ({"layer": "self", "stream": stream, **block} for stream in ("text", "image"))
        co = {"layer": "co", "streams": ["text", "image"], "shared": True, "feed_forward": False, **block}
        crossed = {"group": [co, text, objects], "repeat": config["x_layers"]}
        layers = [{**text, "repeat": config["l_layers"]}, {**objects, "repeat": config["r_layers"]}, crossed]
        return NetworkSpec({"text": bert_config.text_stream(config), "image": image}, layers, ["text"])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {
            "mlm": bert_config.word_head(config),
            "itm": {"objective": "vision.itm"},
            "mrfr": {"objective": "vision.mrfr", "tied": False},
            "objects": {"objective": "vision.mrc", "of": "mrfr"},
            "attributes": {"objective": "vision.mrc", "of": "mrfr", "target": "attributes"},
            "answers": {"objective": "vision.answers"},
        }

    def task(self, config: FamilyConfig) -> Spec:
        return captions(self, config, ["mlm", "itm"], REGIONS)

    def rules(self, config: FamilyConfig) -> list[Rule]:
        before = config["l_layers"] + config["r_layers"]
        crossed = range(config["x_layers"])
        return [
            *bert_names.embeddings("lxmert.embeddings"),
            *bert_names.both(f"{BOXES}.visn_fc", f"{IMAGE}.project"),
            *bert_names.both(f"{BOXES}.visn_layer_norm", f"{IMAGE}.feature_norm"),
            *bert_names.both(f"{BOXES}.box_fc", f"{IMAGE}.box"),
            *bert_names.both(f"{BOXES}.box_layer_norm", f"{IMAGE}.box_norm"),
            *bert_names.layers("lxmert.encoder.layer", config["l_layers"]),
            *bert_names.layers("lxmert.encoder.r_layers", config["r_layers"], config["l_layers"]),
            *(rule for i in crossed for rule in _crossed(f"lxmert.encoder.x_layers.{i}", before + 3 * i)),
            *bert_names.both("lxmert.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head("lxmert.embeddings.word_embeddings.weight"),
            *bert_names.both("cls.seq_relationship", "itm.classifier"),
            *bert_names.both("obj_predict_head.transform.dense", "mrfr.dense"),
            *bert_names.both("obj_predict_head.transform.LayerNorm", "mrfr.norm"),
            SameTensor("obj_predict_head.decoder_dict.feat.weight", "mrfr.output.weight"),
            SameTensor("obj_predict_head.decoder_dict.feat.bias", "mrfr.bias"),
            *bert_names.both("obj_predict_head.decoder_dict.obj", "objects.output"),
            *bert_names.both("obj_predict_head.decoder_dict.attr", "attributes.output"),
            *answer_head("answer_head.logit_fc"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        image, kinds = described.streams["image"], [_kind(layer) for layer in described.layers]
        crossed = kinds.count("co")
        alone = next((layer for layer in described.layers if _kind(layer) != "co"), described.layers[0])
        return {
            **bert_config.config_of(described.streams["text"], alone),
            "architectures": ["LxmertForPreTraining" if "mlm" in described.heads else "LxmertModel"],
            "model_type": "lxmert",
            "l_layers": kinds.count("text") - crossed,
            "r_layers": kinds.count("image") - crossed,
            "x_layers": crossed,
            "visual_feat_dim": image["feature_size"],
            "visual_pos_dim": image["box_size"],
            **_classes(described),
        }


def _classes(described: ModelDescription) -> dict[str, Any]:
    """The numbers of classes of the heads."""
    keys = {"objects": "num_object_labels", "attributes": "num_attr_labels"}
    found = {key: described.heads[name]["num_classes"] for name, key in keys.items() if name in described.heads}
    answers = described.heads.get("answers", {}).get("answers")
    return {**found, **({"num_qa_labels": len(answers)} if isinstance(answers, list) else {})}


def _kind(layer: Spec) -> str:
    """`co`, or the stream of a `self` layer."""
    return "co" if "streams" in layer else str(layer["stream"])


def _crossed(theirs: str, first: int) -> Iterator[Rule]:
    """A layer of theirs as three of ours: co-attention, then each modality by itself."""
    attention = f"{theirs}.visual_attention"
    co = f"layers.{first}.attention.text"
    yield from bert_names.both(f"{attention}.att.query", f"{co}.attention.query")
    yield from bert_names.stacked((f"{attention}.att.key", f"{attention}.att.value"), f"{co}.attention.key_value")
    yield from bert_names.both(f"{attention}.output.dense", f"{co}.attention.output")
    yield from bert_names.both(f"{attention}.output.LayerNorm", f"{co}.residual.norm")
    for name, number in (("lang", first + 1), ("visn", first + 2)):
        yield from bert_names.attention(f"{theirs}.{name}_self_att", f"layers.{number}.attention")
        inner, outer = f"{theirs}.{name}_inter", f"{theirs}.{name}_output"
        yield from bert_names.feed_forward(inner, outer, f"layers.{number}.feed_forward")
