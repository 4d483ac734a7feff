"""Hugging Face CLIP (Radford et al., arXiv:2103.00020): two encoders that never mix, and the space in which they meet.

The text is pooled at its end token, which is the last row here (no padding follows it), the image at its class token; a
norm and a projection follow, which are those of `vision.itc`. The builder decides the visibility.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vision.interop.caption_recipe import captions
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
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

NORM_EPS = 1e-5  # of the norms of `vision.itc`
TEXT, VISION = "text_model", "vision_model"
MAPS = {
    "self_attn.out_proj": "attention.attention.output",
    "layer_norm1": "attention.residual.norm",
    "mlp.fc1": "feed_forward.network.inner",
    "mlp.fc2": "feed_forward.network.outer",
    "layer_norm2": "feed_forward.residual.norm",
}


class Clip(CheckpointFamily):
    """Hugging Face CLIP: `text` and `image` streams with `self` layers each, norms in front; head itc."""

    resumes = False  # the end token is pooled
    corpus = "image-text"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "clip"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        text, vision = _parts(config)
        check_colours(vision)
        words = {
            "embedding": "token",
            "hidden_size": text["hidden_size"],
            "vocab_size": text["vocab_size"],
            "max_positions": text["max_position_embeddings"],
            "token_types": 0,
            "norm": None,
            "dropout": 0.0,
        }
        eps = bert_config.norm_eps(vision)
        size, patch = vision["image_size"], vision["patch_size"]
        image = image_stream(
            vision["hidden_size"], size, patch, normalisation="clip", bias=False, norm=True, norm_eps=eps, dropout=0.0
        )
        return NetworkSpec(
            {"text": words, "image": image}, [encoder_layer(text, "text"), encoder_layer(vision, "image")]
        )

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        for part in _parts(config):
            if bert_config.norm_eps(part) != NORM_EPS:
                raise WorkbenchError(
                    f"layer_norm_eps = {part['layer_norm_eps']}: allowed: {NORM_EPS}, that of vision.itc"
                )
        pools = {"pool_text": "last", "pool_image": "first"}
        return {"itc": {"objective": "vision.itc", "size": config["projection_dim"], "norm": True, **pools}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        text, vision = _parts(config)
        before, after = text["num_hidden_layers"], vision["num_hidden_layers"]
        tokens, patches = f"{TEXT}.embeddings", f"{VISION}.embeddings"
        return [
            SameTensor(f"{tokens}.token_embedding.weight", "embeddings.text.token.weight"),
            SameTensor(f"{tokens}.position_embedding.weight", "embeddings.text.position.weight"),
            *(rule for i in range(before) for rule in block_rules(f"{TEXT}.encoder.layers.{i}", f"layers.{i}")),
            ClassToken((f"{patches}.class_embedding", f"{patches}.position_embedding.weight"), IMAGE, leading=False),
            patch_map(f"{patches}.patch_embedding", vision["hidden_size"], vision["patch_size"]),
            *bert_names.both(f"{VISION}.pre_layrnorm", f"{IMAGE}.norm"),
            *(
                rule
                for i in range(after)
                for rule in block_rules(f"{VISION}.encoder.layers.{i}", f"layers.{before + i}")
            ),
            *bert_names.both(f"{TEXT}.final_layer_norm", "itc.space.norms.text"),
            *bert_names.both(f"{VISION}.post_layernorm", "itc.space.norms.image"),
            SameTensor("text_projection.weight", "itc.space.projections.text.weight"),
            SameTensor("visual_projection.weight", "itc.space.projections.image.weight"),
            SameTensor("logit_scale", "itc.logit_scale"),
            Buffer(f"{tokens}.position_ids"),
            Buffer(f"{patches}.position_ids"),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def sequence(self, config: FamilyConfig) -> Spec:
        return {"builder": "document", "visibility": "causal", "begin": "bos", "end": "eos"}

    def task(self, config: FamilyConfig) -> Spec:
        vision = _parts(config)[1]
        shape = {"size": vision["image_size"], "patch": vision["patch_size"]}
        image = {"image_processor": "vision.patches", **shape, "resize": "crop", "crop_scale": 0.9, "class_row": True}
        return captions(self, config, ["itc"], image, captions="one")

    def preprocessor(self, config: FamilyConfig, embedding: Spec, image: Spec) -> dict[str, Any] | None:
        made = square_preprocessor(embedding, image)
        return None if made is None else {**made, "processor_class": "CLIPProcessor"}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, image = described.streams["text"], described.streams["image"]
        layers = {name: [one for one in described.layers if one.get("stream") == name] for name in ("text", "image")}
        vocabulary = text["vocab_size"]
        return {
            "architectures": ["CLIPModel"],
            "model_type": "clip",
            "projection_dim": described.heads.get("itc", {}).get("size", 512),
            "text_config": {
                "model_type": "clip_text_model",
                "vocab_size": vocabulary,
                "max_position_embeddings": text["max_positions"],
                **encoder_config(text, layers["text"]),
                # the last two tokens of the published vocabulary; a tokenizer's own ids replace them
                "bos_token_id": vocabulary - 2,
                "eos_token_id": vocabulary - 1,
                "pad_token_id": None,
            },
            "vision_config": {
                "model_type": "clip_vision_model",
                "image_size": image_size_of(image),
                "patch_size": image["patch"],
                "num_channels": 3,
                **encoder_config(image, layers["image"]),
            },
        }


def _parts(config: FamilyConfig) -> tuple[FamilyConfig, FamilyConfig]:
    """The options of the text's encoder and of the image's."""
    text, vision = (
        FamilyConfig({"layer_norm_eps": NORM_EPS, **config[key]}) for key in ("text_config", "vision_config")
    )
    return text, vision


def encoder_layer(config: FamilyConfig, stream: str) -> Spec:
    """The layers of an encoder."""
    return {
        "layer": "self",
        "stream": stream,
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "activation": bert_config.activation(FamilyConfig({"hidden_act": "quick_gelu", **config})),
        "norm_place": "pre",
        "norm_eps": float(config.get("layer_norm_eps", NORM_EPS)),
        "dropout": 0.0,
        "attention_dropout": config.get("attention_dropout", 0.0),
        "repeat": config["num_hidden_layers"],
    }


def encoder_config(stream: Spec, layers: list[Spec]) -> dict[str, Any]:
    """The part of a configuration that describes an encoder's layers."""
    first = layers[0]
    return {
        "hidden_size": stream["hidden_size"],
        "num_hidden_layers": len(layers),
        "num_attention_heads": first["num_heads"],
        "intermediate_size": first["intermediate_size"],
        "hidden_act": bert_config.THEIR_ACTIVATIONS.get(first["activation"], "quick_gelu"),
        "layer_norm_eps": first["norm_eps"],
        "attention_dropout": first["attention_dropout"],
    }


def block_rules(theirs: str, ours: str) -> list[Rule]:
    """The names of a layer."""
    query = tuple(f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v"))
    return [
        *bert_names.stacked(query, f"{ours}.attention.attention.qkv"),
        *(rule for one, other in MAPS.items() for rule in bert_names.both(f"{theirs}.{one}", f"{ours}.{other}")),
    ]
