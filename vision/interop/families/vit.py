"""Hugging Face ViT (Dosovitskiy et al., arXiv:2010.11929): patches with a class token, norms before the sublayers.

Its configuration lacks the normalisation of pixels (a preprocessor has it): a loaded network has `normalisation: half`,
the usual one of this family.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vision.interop.patch_names import (
    IMAGE,
    ClassToken,
    check_colours,
    image_size_of,
    image_stream,
    patch_map,
    square_preprocessor,
)
from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import DROPOUT, ModelDescription
from workbench.interop.rules import Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""Defaults of options that a configuration omits."""


class Vit(CheckpointFamily):
    """Hugging Face ViT: an `image` stream of patches, `self` layers with norms in front, a last `norm`, a pooler."""

    prefix = "vit."
    free = DROPOUT | {"normalisation"}

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "vit"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        check_colours(config)
        if not config.get("qkv_bias", True):
            raise WorkbenchError(
                "qkv_bias = false: allowed: true, as attention has a bias in all of its maps or in none"
            )
        image = image_stream(
            config["hidden_size"],
            config["image_size"],
            config["patch_size"],
            dropout=config.get("hidden_dropout_prob", 0.0),
        )
        block = {**bert_config.block(FamilyConfig({**NO_DROPOUT, **config})), "norm_place": "pre"}
        layer = {"layer": "self", "stream": "image", **block, "repeat": config["num_hidden_layers"]}
        last = {"layer": "norm", "stream": "image", "norm_eps": bert_config.norm_eps(config)}
        return NetworkSpec({"image": image}, [layer, last], ["image"])

    def rules(self, config: FamilyConfig) -> list[Rule]:
        count, size, patch = config["num_hidden_layers"], config["hidden_size"], config["patch_size"]
        projection = "vit.embeddings.patch_embeddings.projection"
        return [
            ClassToken(("vit.embeddings.cls_token", "vit.embeddings.position_embeddings"), IMAGE),
            patch_map(projection, size, patch),
            SameTensor(f"{projection}.bias", f"{IMAGE}.project.bias"),
            *(rule for i in range(count) for rule in block_rules(f"vit.encoder.layer.{i}", f"layers.{i}")),
            *bert_names.both("vit.layernorm", f"layers.{count}.norm"),
            *bert_names.both("vit.pooler.dense", "poolers.image.dense"),
        ]

    def preprocessor(self, config: FamilyConfig, embedding: Spec, image: Spec) -> dict[str, Any] | None:
        return square_preprocessor(embedding, image)

    def config(self, described: ModelDescription) -> dict[str, Any]:
        image, first = described.streams["image"], described.layers[0]
        return {
            "architectures": ["ViTModel"],
            "model_type": "vit",
            "num_hidden_layers": len(described.layers) - 1,
            **block_config(first),
            "hidden_size": image["hidden_size"],
            "hidden_dropout_prob": image["dropout"],
            "image_size": image_size_of(image),
            "patch_size": image["patch"],
            "num_channels": 3,
            "qkv_bias": True,
        }


def block_rules(theirs: str, ours: str) -> list[Rule]:
    """A layer of ViT under BERT's names, which ViLT kept."""
    query = tuple(f"{theirs}.attention.attention.{name}" for name in bert_names.QKV)
    return [
        *bert_names.stacked(query, f"{ours}.attention.attention.qkv"),
        *bert_names.both(f"{theirs}.attention.output.dense", f"{ours}.attention.attention.output"),
        *bert_names.both(f"{theirs}.layernorm_before", f"{ours}.attention.residual.norm"),
        *bert_names.both(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.network.inner"),
        *bert_names.both(f"{theirs}.output.dense", f"{ours}.feed_forward.network.outer"),
        *bert_names.both(f"{theirs}.layernorm_after", f"{ours}.feed_forward.residual.norm"),
    ]


def block_config(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that describe a layer of ours."""
    return {
        "num_attention_heads": layer["num_heads"],
        "intermediate_size": layer["intermediate_size"],
        "hidden_act": bert_config.THEIR_ACTIVATIONS.get(layer["activation"], "gelu"),
        "attention_probs_dropout_prob": layer["attention_dropout"],
        "layer_norm_eps": layer["norm_eps"],
    }
