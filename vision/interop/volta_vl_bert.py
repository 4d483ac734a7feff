"""VOLTA's VL-BERT on top of its numbered sublayers: words and regions as elements with visual features.

Its table of segments has an additional row, the type of regions. Its norm, and those of visual features, are in the
first of our layers (`vision.visual_elements`). In both codes words have the feature of the image's last row: the whole
image's with `add_global_imgfeat: last`, as in its original configuration, and an ordinary region's with `first`, as in
the controlled one. It depends on the rows that a network reads (`whole` of `vision.regions`); `last` is written here,
as in the recipe. Its code pads images to the same number of rows, so that the words of an image with fewer regions get
a padding row; images here have none.
"""

from __future__ import annotations

from typing import Any

from vision.interop.region_streams import IMAGE
from workbench.interop import bert_config
from workbench.interop.bert_names import both
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

KIND = "vl-bert"
TIE = {"layers.0.position": "text.position"}
WORD_MASKED = "6"
"""The target of regions for which hidden ones have a vector in the place of a word's."""


def network(config: FamilyConfig, layers: list[Spec], masked_element: bool) -> NetworkSpec:
    """The network of a configuration with the given other layers."""
    types = config.get("type_vocab_size", 3) - 1
    text = bert_config.text_stream(config, token_types=types, norm=None, dropout=0.0)
    image = {
        "embedding": "vision.visual_feature",
        "hidden_size": config["v_hidden_size"],
        "feature_size": config["v_feature_size"],
        "waves": config["v_coordinate_embeddings_dim"],
        "dropout": config.get("v_attention_probs_dropout_prob", 0.1),
    }
    elements = {
        "layer": "vision.visual_elements",
        "max_positions": text["max_positions"],
        "masked_element": masked_element,
        "dropout": config.get("hidden_dropout_prob", 0.1),
    }
    return NetworkSpec({"text": text, "image": image}, [elements, *layers], tie=TIE)


def is_one(described: ModelDescription) -> bool:
    """Whether a network of ours begins like VL-BERT."""
    return "masked_element" in described.layers[0]


def config(described: ModelDescription) -> dict[str, Any]:
    """The keys of the configuration that differ from VOLTA's others."""
    text, image, elements = described.streams["text"], described.streams["image"], described.layers[0]
    return {
        "image_embeddings": KIND,
        "add_global_imgfeat": "last",
        "v_coordinate_embeddings_dim": image["waves"],
        "v_attention_probs_dropout_prob": image["dropout"],
        "type_vocab_size": text["token_types"] + 1,
        "hidden_dropout_prob": elements["dropout"],
        "num_locs": 4,
    }


def rules(config: FamilyConfig, masked_element: bool) -> list[Rule]:
    """The names of the embeddings and of the first layer."""
    theirs, types = "bert.embeddings", config.get("type_vocab_size", 3)
    positions = f"{theirs}.position_embeddings.weight"
    vectors = {"object_linguistic_embeddings": "element", "end_embedding": "end"}
    if masked_element:
        vectors["object_mask_word_embedding"] = "masked_element"
    norms = {"visual_ln_text": "norm_text", "visual_ln_object": "norm_image", "LayerNorm": "norm"}
    segments = (("embeddings.text.token_type.weight", (0, types - 1)), ("layers.0.type_vector", types - 1))
    return [
        SameTensor(f"{theirs}.word_embeddings.weight", "embeddings.text.token.weight"),
        SameTensor(positions, "embeddings.text.position.weight"),
        SameTensor(positions, "layers.0.position.weight"),
        RowRanges(f"{theirs}.token_type_embeddings.weight", segments, types),
        *both(f"{theirs}.obj_downsample.1", f"{IMAGE}.combine"),
        RowRanges(f"{theirs}.object_mask_visual_embedding.weight", ((f"{IMAGE}.mask", 0),), 1),
        *(RowRanges(f"{theirs}.{name}.weight", ((f"layers.0.{ours}", 0),), 1) for name, ours in vectors.items()),
        *(rule for name, ours in norms.items() for rule in both(f"{theirs}.{name}", f"layers.0.{ours}")),
    ]
