"""Hugging Face LLaVA (Liu et al., arXiv:2304.08485, arXiv:2310.03744): CLIP's image encoder, a projector, a Llama.

Of the image encoder's layers those up to `vision_feature_layer` are read; the rest of it has no counterpart here. A
network of ours is written with all of its layers, and that option as the last. The image is before the text, or behind
the first rows of it; which rows see which is that of the transform `before`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

from torch import Tensor

from vision.interop.families.clip import NORM_EPS, block_rules, encoder_config, encoder_layer
from vision.interop.patch_names import (
    IMAGE,
    ClassToken,
    check_colours,
    image_size_of,
    image_stream,
    patch_map,
    square_preprocessor,
)
from workbench.core.errors import WorkbenchError, unknown
from workbench.interop import bert_config, bert_names
from workbench.interop.families.llama import Llama
from workbench.interop.family import TIED, CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Rule, weights_of
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

TOWER, WORDS, PROJECTED = "vision_tower", "language_model", "projected"
TEXT = Llama()


class Llava(CheckpointFamily):
    """Hugging Face LLaVA: `self` layers of an `image` stream, `vision.projector`, `joint` layers of its rows and `text`
    with RMSNorm in front and rotary positions, a last `norm`; clm."""

    corpus = "questions"
    marks: ClassVar[Mapping[str, str]] = {"image_token_index": "<image>"}

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "llava"

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        return FamilyConfig({TIED: False, **config})

    def spelt(self, name: str) -> str:
        """The name as in older files: newer ones have `model.` in front, and the words' encoder without its own."""
        name = name.replace(f"{TOWER}.vision_model.", f"{TOWER}.")
        if name.startswith("lm_head."):
            return f"{WORDS}.{name}"
        if name.startswith(f"model.{WORDS}."):
            return name.replace(f"model.{WORDS}.", f"{WORDS}.model.", 1)
        return name.removeprefix("model.")

    def network(self, config: FamilyConfig) -> NetworkSpec:
        vision, text = _parts(config)
        check_colours(vision)
        chosen, name = config.get("vision_feature_select_strategy", "default"), config.get("projector_hidden_act")
        if chosen != "default":
            raise unknown("vision_feature_select_strategy", chosen, ("default",), "the configuration")
        eps = bert_config.norm_eps(vision)
        patches = (vision["hidden_size"], vision["image_size"], vision["patch_size"])
        image = image_stream(*patches, normalisation="clip", bias=False, norm=True, norm_eps=eps, dropout=0.0)
        words = TEXT.network(text)
        projector = {
            "layer": "vision.projector",
            "stream": PROJECTED,
            "to": "image",
            "activation": bert_config.activation(FamilyConfig({"hidden_act": name or "gelu"})),
            "bias": bool(config.get("multimodal_projector_bias", True)),
        }
        tower = {**encoder_layer(vision, "image"), "repeat": _depth(config, vision)}
        *layers, last = words.layers
        joint = [{**_without(one, "stream"), "layer": "joint", "streams": [PROJECTED, "text"]} for one in layers]
        projected = {"embedding": "vision.projected", "hidden_size": text["hidden_size"]}
        streams = {"text": words.streams["text"], "image": image, PROJECTED: projected}
        return NetworkSpec(streams, [tower, projector, *joint, last])

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return TEXT.heads(_parts(config)[1])

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def sequence(self, config: FamilyConfig) -> Spec:
        vision = _parts(config)[0]
        shape = {"size": vision["image_size"], "patch": vision["patch_size"]}
        return {
            "builder": "conversation",
            "begin": "bos",
            "end": "eos",
            "ended": ["assistant"],
            "template": {"user": "USER: ", "assistant": " ASSISTANT: "},
            "between": "",
            "image_processor": {"image_processor": "vision.patches", **shape, "class_row": True},
            "transforms": [
                {"transform": "vision.projected"},
                {"transform": "before", "streams": [PROJECTED, "text"], "lead": 1},
            ],
        }

    def rules(self, config: FamilyConfig) -> list[Rule]:
        vision, text = _parts(config)
        depth, patches = _depth(config, vision), f"{TOWER}.embeddings"
        rules: list[Rule] = [
            ClassToken((f"{patches}.class_embedding", f"{patches}.position_embedding.weight"), IMAGE, leading=False),
            patch_map(f"{patches}.patch_embedding", vision["hidden_size"], vision["patch_size"]),
            *bert_names.both(f"{TOWER}.pre_layrnorm", f"{IMAGE}.norm"),
            *(rule for i in range(depth) for rule in block_rules(f"{TOWER}.encoder.layers.{i}", f"layers.{i}")),
            *bert_names.both("multi_modal_projector.linear_1", f"layers.{depth}.inner"),
            *bert_names.both("multi_modal_projector.linear_2", f"layers.{depth}.outer"),
        ]
        unread = [block_rules(f"{TOWER}.encoder.layers.{i}", "") for i in range(depth, vision["num_hidden_layers"])]
        unread.append(bert_names.both(f"{TOWER}.post_layernorm", ""))
        rules += [Buffer(name) for part in unread for name in weights_of(part)]
        return rules + [_placed(rule, depth + 1) for rule in TEXT.rules(text)]

    def preprocessor(self, config: FamilyConfig, embedding: Spec, image: Spec) -> dict[str, Any] | None:
        made = square_preprocessor(embedding, image)
        return None if made is None else {**made, "processor_class": "LlavaProcessor"}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        image, layers = described.streams["image"], described.layers
        tower = [one for one in layers if one.get("stream") == "image"]
        projector = layers[len(tower)]
        words = TEXT.config(described._replace(layers=layers[len(tower) + 1 :]))
        vision = {
            "model_type": "clip_vision_model",
            "image_size": image_size_of(image),
            "patch_size": image["patch"],
            "num_channels": 3,
            **encoder_config(image, tower),
        }
        return {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": words,
            "vision_config": vision,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "default",
            "projector_hidden_act": bert_config.THEIR_ACTIVATIONS.get(projector["activation"], "gelu"),
            "multimodal_projector_bias": projector["bias"],
            "image_seq_length": image["grid"] ** 2,
            TIED: words[TIED],
        }


def _parts(config: FamilyConfig) -> tuple[FamilyConfig, FamilyConfig]:
    """The options of the image encoder and of the words' decoder.

    Raises:
        WorkbenchError: the decoder is no Llama.
    """
    vision = FamilyConfig({"layer_norm_eps": NORM_EPS, **config["vision_config"]})
    text = FamilyConfig({TIED: config.get(TIED, False), **config["text_config"]})
    if text.get("model_type", "llama") != "llama":
        raise unknown("model_type", text["model_type"], ("llama",), "text_config of the configuration")
    return vision, text


def _depth(config: FamilyConfig, vision: FamilyConfig) -> int:
    """The number of layers of the image encoder that are read.

    Raises:
        WorkbenchError: the features are of several layers, or of none.
    """
    chosen, layers = config.get("vision_feature_layer", -2), vision["num_hidden_layers"]
    depth = chosen if not isinstance(chosen, int) or chosen >= 0 else layers + 1 + chosen
    if not isinstance(depth, int) or not 0 < depth <= layers:
        raise WorkbenchError(f"vision_feature_layer = {chosen}: needed: one of the {layers} layers, from 1 or from -1")
    return depth


def _placed(rule: Rule, first: int) -> Rule:
    """A rule of the words' decoder, whose layers begin at `first` here."""

    def named(value: Any, key: str) -> Any:
        if isinstance(value, tuple):
            return tuple(named(one, key) for one in value)
        if not isinstance(value, str) or not value:
            return value
        if key in ("target", "own"):
            return re.sub(r"^layers\.(\d+)", lambda found: f"layers.{first + int(found[1])}", value)
        return f"{WORDS}.{value}"

    return replace(rule, **{field.name: named(getattr(rule, field.name), field.name) for field in fields(rule)})


def _without(spec: Spec, key: str) -> Spec:
    return {name: value for name, value in spec.items() if name != key}
