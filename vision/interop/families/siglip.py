"""Hugging Face SigLIP (Zhai et al., arXiv:2303.15343): two encoders that never mix, and a sigmoid loss of their pairs.

The text is pooled at its last row, which is padding for texts shorter than the context: the transform `fill` makes
these rows. The image is pooled by one learned query (`vision.attention_pool` with `feed_forward`). Only the text is
projected, into the space of the image's states. The configuration lacks the normalisation of pixels (a preprocessor
has it): a loaded network has `normalisation: half`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from vision.interop.attention_names import divided_attention
from vision.interop.caption_recipe import captions
from vision.interop.families.clip import MAPS
from vision.interop.patch_names import IMAGE, check_colours, image_size_of, image_stream, patch_map, square_preprocessor
from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import DROPOUT, ModelDescription
from workbench.interop.rules import Buffer, ReshapedTensor, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

TEXT, VISION, POOLED = "text_model", "vision_model", "pooled"
STREAMS = {"text", "image", POOLED}
SIZES = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
         "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "attention_dropout": 0.0}  # fmt: skip
WORDS = {"vocab_size": 32000, "max_position_embeddings": 64}
PIXELS = {"image_size": 224, "patch_size": 16, "num_channels": 3}


class Siglip(CheckpointFamily):
    """Hugging Face SigLIP: `text` and `image` streams with `self` layers each and a last `norm`, the image's `pooled`
    by one query; head itc with the sigmoid loss."""

    free = DROPOUT | {"normalisation"}
    corpus = "image-text"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "siglip"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        text, vision = _parts(config)
        check_colours(vision)
        words = {"embedding": "token", "hidden_size": text["hidden_size"], "vocab_size": text["vocab_size"],
                 "max_positions": text["max_position_embeddings"], "token_types": 0, "norm": None,
                 "dropout": 0.0}  # fmt: skip
        image = image_stream(
            vision["hidden_size"], vision["image_size"], vision["patch_size"], class_vector=False, dropout=0.0
        )
        pooled = {"embedding": "queries", "hidden_size": vision["hidden_size"], "count": 1}
        layers = [layer for part, stream in ((text, "text"), (vision, "image")) for layer in _layers(part, stream)]
        return NetworkSpec({"text": words, "image": image, POOLED: pooled}, [*layers, _pool(vision)])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        text, vision = _parts(config)
        size = text.get("projection_size", text["hidden_size"])
        if size != vision["hidden_size"]:
            raise WorkbenchError(
                f"projection_size = {size}, hidden_size of the image = {vision['hidden_size']}; allowed: the same, as "
                "their products are compared"
            )
        compared = {"pool_text": "last", "pool_image": "first", "image": POOLED}
        layers = {"size": size, "projected": "text", "bias": True}
        return {"itc": {"objective": "vision.itc", "loss": "sigmoid", **layers, **compared}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        text, vision = _parts(config)
        before, after, size = text["num_hidden_layers"], vision["num_hidden_layers"], vision["hidden_size"]
        tokens, patches, pool, last = f"{TEXT}.embeddings", f"{VISION}.embeddings", f"{VISION}.head", before + after + 2
        return [
            SameTensor(f"{tokens}.token_embedding.weight", "embeddings.text.token.weight"),
            SameTensor(f"{tokens}.position_embedding.weight", "embeddings.text.position.weight"),
            *(rule for i in range(before) for rule in _block(f"{TEXT}.encoder.layers.{i}", f"layers.{i}")),
            *bert_names.both(f"{TEXT}.final_layer_norm", f"layers.{before}.norm"),
            *bert_names.both(f"{TEXT}.head", "itc.space.projections.text"),
            patch_map(f"{patches}.patch_embedding", size, vision["patch_size"]),
            SameTensor(f"{patches}.patch_embedding.bias", f"{IMAGE}.project.bias"),
            SameTensor(f"{patches}.position_embedding.weight", f"{IMAGE}.positions.tables.0.weight"),
            *(
                rule
                for i in range(after)
                for rule in _block(f"{VISION}.encoder.layers.{i}", f"layers.{before + 1 + i}")
            ),
            *bert_names.both(f"{VISION}.post_layernorm", f"layers.{last - 1}.norm"),
            ReshapedTensor(f"{pool}.probe", f"embeddings.{POOLED}.table.weight", (1, 1, size), (1, size)),
            *divided_attention(f"{pool}.attention", f"layers.{last}.attention", size, same=True),
            *bert_names.both(f"{pool}.layernorm", f"layers.{last}.feed_forward.residual.norm"),
            *bert_names.both(f"{pool}.mlp.fc1", f"layers.{last}.feed_forward.network.inner"),
            *bert_names.both(f"{pool}.mlp.fc2", f"layers.{last}.feed_forward.network.outer"),
            ReshapedTensor("logit_scale", "itc.logit_scale", (1,), ()),
            ReshapedTensor("logit_bias", "itc.logit_bias", (1,), ()),
            Buffer(f"{tokens}.position_ids"),
            Buffer(f"{patches}.position_ids"),
        ]

    def sequence(self, config: FamilyConfig) -> Spec:
        fill = {"transform": "fill", "length": _parts(config)[0]["max_position_embeddings"]}
        return {"builder": "document", "begin": None, "end": "eos", "transforms": [fill]}

    def task(self, config: FamilyConfig) -> Spec:
        vision = _parts(config)[1]
        image = {"image_processor": "vision.patches", "size": vision["image_size"], "patch": vision["patch_size"]}
        query = {"transform": "queries", "stream": POOLED, "count": 1}
        transforms = [*self.sequence(config)["transforms"], query]
        return captions(self, config, ["itc"], image, captions="one", transforms=transforms)

    def preprocessor(self, config: FamilyConfig, embedding: Spec, image: Spec) -> dict[str, Any] | None:
        made = square_preprocessor(embedding, image)
        return None if made is None else {**made, "processor_class": "SiglipProcessor"}

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """Without the last layers and their streams, if no other layer reads these: the decoder of SigLIP 2
        (arXiv:2502.14786). Nor with the vector of hidden patches. Both are not used after training."""
        others = described.streams.keys() - STREAMS
        layers = [layer for layer in described.layers if layer.get("stream") not in others]
        after = range(len(layers), len(described.layers))
        if described.layers[: len(layers)] != layers or any(layer.get("to") in others for layer in layers):
            return described, state
        gone = (
            f"{IMAGE}.mask",
            *(f"embeddings.{name}." for name in others),
            *(f"layers.{number}." for number in after),
        )
        streams = {name: part for name, part in described.streams.items() if name in STREAMS}
        streams |= {"image": {**streams["image"], "mask_vector": False}} if "image" in streams else {}
        heads = {name: head for name, head in described.heads.items() if head.get("stream") not in others}
        kept = {name: tensor for name, tensor in state.items() if not name.startswith(gone)}
        return described._replace(streams=streams, layers=layers, heads=heads), kept

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, image = described.streams["text"], described.streams["image"]
        layers = {name: [one for one in described.layers if one.get("stream") == name] for name in ("text", "image")}
        size = described.heads.get("itc", {}).get("size", image["hidden_size"])
        return {
            "architectures": ["SiglipModel"],
            "model_type": "siglip",
            "text_config": {
                "model_type": "siglip_text_model",
                "vocab_size": text["vocab_size"],
                "max_position_embeddings": text["max_positions"],
                "projection_size": size,
                **_config_of(text, layers["text"]),
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "image_size": image_size_of(image),
                "patch_size": image["patch"],
                "num_channels": 3,
                **_config_of(image, layers["image"]),
            },
        }


def _parts(config: FamilyConfig) -> tuple[FamilyConfig, FamilyConfig]:
    """The options of the text's encoder and of the image's; the library leaves out its defaults."""
    defaults = ({**SIZES, **WORDS}, {**SIZES, **PIXELS})
    text, vision = (
        FamilyConfig({**known, **config[key]})
        for key, known in zip(("text_config", "vision_config"), defaults, strict=True)
    )
    return text, vision


def _inner(config: FamilyConfig) -> Spec:
    return {
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "activation": bert_config.activation(config),
        "norm_eps": bert_config.norm_eps(config),
    }


def _layers(config: FamilyConfig, stream: str) -> list[Spec]:
    """The encoder of a stream, and the norm behind it."""
    dropouts = {"dropout": 0.0, "attention_dropout": config["attention_dropout"]}
    block = {"layer": "self", "stream": stream, "norm_place": "pre", **_inner(config), **dropouts}
    norm = {"layer": "norm", "stream": stream, "norm_eps": bert_config.norm_eps(config)}
    return [{**block, "repeat": config["num_hidden_layers"]}, norm]


def _pool(config: FamilyConfig) -> Spec:
    return {"layer": "vision.attention_pool", "stream": POOLED, "to": "image", "feed_forward": True, **_inner(config)}


def _config_of(stream: Spec, layers: list[Spec]) -> dict[str, Any]:
    blocks = [layer for layer in layers if "num_heads" in layer]
    first, activation = blocks[0], blocks[0]["activation"]
    return {
        "hidden_size": stream["hidden_size"],
        "num_hidden_layers": len(blocks),
        "num_attention_heads": first["num_heads"],
        "intermediate_size": first["intermediate_size"],
        "hidden_act": "gelu_pytorch_tanh" if activation == "gelu_tanh" else bert_config.THEIR_ACTIVATIONS[activation],
        "layer_norm_eps": first["norm_eps"],
        "attention_dropout": first["attention_dropout"],
    }


def _block(theirs: str, ours: str) -> list[Rule]:
    query = tuple(f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v"))
    return [
        *bert_names.stacked(query, f"{ours}.attention.attention.qkv"),
        *(rule for one, other in MAPS.items() for rule in bert_names.both(f"{theirs}.{one}", f"{ours}.{other}")),
    ]
