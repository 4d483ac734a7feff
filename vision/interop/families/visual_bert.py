"""Hugging Face VisualBERT (Li et al., arXiv:1908.03557).

Regions have the text's norm (`tie: {image.norm: text.norm}`), and as their type the sum of row 1 of a table of segments
and row 0 of one of positions. Labels of matching are reversed: 0 = matched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vision.interop.caption_recipe import REGIONS, captions
from vision.interop.region_streams import IMAGE, regions
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, ReversedTensor, Rule, Sum
from workbench.recipe.spec import NetworkSpec, Spec

VISUAL = "visual_bert.embeddings.visual_"


class VisualBert(CheckpointFamily):
    """Hugging Face VisualBERT: `text` and `image` streams with one norm, `joint` layers; heads mlm and itm."""

    prefix = "visual_bert."
    corpus = "image-text-regions"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "visual_bert"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        eps = bert_config.norm_eps(config)
        variant = {"box_size": 0, "norm_parts": False, "mask_vector": False, "norm_eps": eps}
        image = regions(config["hidden_size"], config["visual_embedding_dim"], config, **variant)
        layer = {"layer": "joint", "streams": ["text", "image"], **bert_config.block(config)}
        return NetworkSpec(
            {"text": bert_config.text_stream(config), "image": image},
            [{**layer, "repeat": config["num_hidden_layers"]}],
            ["text"],
            tie={"image.norm": "text.norm"},
        )

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": bert_config.word_head(config), "itm": {"objective": "vision.itm"}}

    def task(self, config: FamilyConfig) -> Spec:
        return captions(self, config, ["mlm", "itm"], REGIONS)

    def rules(self, config: FamilyConfig) -> list[Rule]:
        types, positions = config.get("type_vocab_size", 2), config.get("max_position_embeddings", 512)
        summed = (
            (f"{VISUAL}token_type_embeddings.weight", 1, types),
            (f"{VISUAL}position_embeddings.weight", 0, positions),
        )
        return [
            *bert_names.embeddings("visual_bert.embeddings"),
            *bert_names.both(f"{VISUAL}projection", f"{IMAGE}.project"),
            Sum(summed, f"{IMAGE}.type_vector"),
            *bert_names.layers("visual_bert.encoder.layer", config["num_hidden_layers"]),
            *bert_names.both("visual_bert.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head("visual_bert.embeddings.word_embeddings.weight"),
            bert_names.decoder_bias(),
            *(ReversedTensor(f"cls.seq_relationship.{p}", f"itm.classifier.{p}") for p in bert_names.PARAMETERS),
            Buffer("visual_bert.embeddings.position_ids"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {
            **bert_config.config_of(described.streams["text"], described.layers[0]),
            "architectures": ["VisualBertForPreTraining" if "mlm" in described.heads else "VisualBertModel"],
            "model_type": "visual_bert",
            "num_hidden_layers": len(described.layers),
            "visual_embedding_dim": described.streams["image"]["feature_size"],
        }
