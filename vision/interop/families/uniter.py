"""UNITER's published code (github.com/ChenRocks/UNITER; Chen et al., arXiv:1909.11740).

It stores the type of regions in the text's table of segments (row 1), so the text has one segment (`token_types: 1`);
the vector of masked regions is row 1 of a table of two. Labels of matching agree: 1 = matched. Its only classifier of
regions is the head of mrc_kl here, or of mrc: a recipe has one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from vision.interop.caption_recipe import REGIONS, captions
from vision.interop.region_streams import IMAGE, answer_head, class_head, regions
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

WORDS = "uniter.embeddings.word_embeddings.weight"
TYPES = "uniter.embeddings.token_type_embeddings.weight"
PROJECTION = "uniter.img_embeddings.img_linear"
CLASSIFIERS = ("mrc", "mrc_kl")


class Uniter(CheckpointFamily):
    """UNITER: `text` and `image` streams (`vision.regions`), `joint` layers; heads mlm, mrfr (tied), mrc or mrc_kl,
    itm, answers."""

    prefix = "uniter."
    corpus = "image-text-regions"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return f"{PROJECTION}.weight" in names or f"{PROJECTION}.weight".removeprefix(self.prefix) in names

    def network(self, config: FamilyConfig) -> NetworkSpec:
        image = regions(config["hidden_size"], config["img_dim"], config, norm_eps=bert_config.norm_eps(config))
        layer = {"layer": "joint", "streams": ["text", "image"], **bert_config.block(config)}
        return NetworkSpec(
            {"text": bert_config.text_stream(config, token_types=1), "image": image},
            [{**layer, "repeat": config["num_hidden_layers"]}],
            ["text"],
        )

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {
            "mlm": bert_config.word_head(config, norm_eps=1e-12),
            "mrfr": {"objective": "vision.mrfr", "tied": True},
            "mrc": {"objective": "vision.mrc", "norm": True},
            "mrc_kl": {"objective": "vision.mrc_kl"},
            "itm": {"objective": "vision.itm"},
            "answers": {"objective": "vision.answers"},
        }

    def task(self, config: FamilyConfig) -> Spec:
        return captions(self, config, ["mlm", "itm"], REGIONS)

    def rules(self, config: FamilyConfig) -> list[Rule]:
        text = [rule for rule in bert_names.embeddings("uniter.embeddings") if rule != _whole_types()]
        types = (("embeddings.text.token_type.weight", (0, 1)), (f"{IMAGE}.type_vector", 1))
        return [
            *text,
            RowRanges(TYPES, types, 2),
            *bert_names.both(PROJECTION, f"{IMAGE}.project"),
            *bert_names.both("uniter.img_embeddings.img_layer_norm", f"{IMAGE}.feature_norm"),
            *bert_names.both("uniter.img_embeddings.pos_linear", f"{IMAGE}.box"),
            *bert_names.both("uniter.img_embeddings.pos_layer_norm", f"{IMAGE}.box_norm"),
            *bert_names.both("uniter.img_embeddings.LayerNorm", f"{IMAGE}.norm"),
            RowRanges("uniter.img_embeddings.mask_embedding.weight", ((f"{IMAGE}.mask", 1),), 2),
            *bert_names.layers("uniter.encoder.layer", config["num_hidden_layers"]),
            *bert_names.both("uniter.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head(WORDS),
            SameTensor("feat_regress.bias", "mrfr.bias"),
            *bert_names.both("feat_regress.net.0", "mrfr.dense"),
            *bert_names.both("feat_regress.net.2", "mrfr.norm"),
            Copy("feat_regress.weight", f"{PROJECTION}.weight", "feat_regress.bias"),
            *(rule for ours in CLASSIFIERS for rule in class_head("region_classifier.net", ours, "0", "2", "3")),
            *bert_names.both("itm_output", "itm.classifier"),
            *answer_head("vqa_output"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {
            **bert_config.config_of(described.streams["text"], described.layers[0]),
            "type_vocab_size": 2,
            "num_hidden_layers": len(described.layers),
            "img_dim": described.streams["image"]["feature_size"],
        }

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        """The published configuration does not have the feature size; it is 2048."""
        projection = state.get(f"{PROJECTION}.weight", state.get(f"{PROJECTION}.weight".removeprefix(self.prefix)))
        return config if projection is None else FamilyConfig({"img_dim": projection.shape[1], **config})


def _whole_types() -> Rule:
    return SameTensor(TYPES, "embeddings.text.token_type.weight")
