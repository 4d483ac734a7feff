"""open_clip's CoCa (github.com/mlfoundations/open_clip, coca_model.py; Yu et al., arXiv:2205.01917).

It differs from the paper in these points, by its own comments. One pooler serves both tasks: its first query is
contrasted, and the decoder reads the others (`unread` of the transform `queries`). The class token of a text
that is shorter than the context sees one row of padding and not itself (`length` of the transform `vision.text_class`).
Attention and cross-attention of the decoder are separate layers, each with a feed-forward block. Words are predicted by
a separate matrix. Its loss ignores labels with the padding's id, which in CLIP's vocabulary is that of "!".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vision.interop.attention_names import divided_attention
from vision.interop.caption_recipe import captions
from vision.interop.patch_names import IMAGE, ClassToken, image_size_of, image_stream, patch_map
from workbench.core.errors import WorkbenchError
from workbench.interop.bert_names import both
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule, SameTensor, Stack, State, TransposedTensor
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

NORM_EPS = 1e-5
TAP = "unimodal"
TEXTS = ["text", "padding", "class"]
VISION = {"layers": 12, "width": 768, "head_width": 64, "mlp_ratio": 4.0, "patch_size": 16, "image_size": 224,
          "attn_pooler_queries": 256, "attn_pooler_heads": 8}  # fmt: skip
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12, "mlp_ratio": 4.0}
OTHERS: dict[str, dict[str, Any]] = {
    "vision_cfg": {"attentional_pool": True, "ls_init_value": None, "no_ln_pre": False, "pos_embed_type": "learnable",
                   "pool_type": "tok", "block_type": None, "timm_model_name": None},
    "text_cfg": {"embed_cls": True, "ls_init_value": None, "no_causal_mask": False, "proj_type": "linear",
                 "proj_bias": False, "hf_model_name": None, "block_type": None},
    "multimodal_cfg": {"ls_init_value": None},
}  # fmt: skip
"""Options that ours supports with these values only; `None`: a configuration may omit it, except the first of two."""


class OpenClipCoca(CheckpointFamily):
    """open_clip's CoCa with one attentional pooler: streams `text`, `padding`, `class`, `image` and `captioning`, norms
    in front; heads itc (of `class` and `captioning`, at the tap `unimodal`) and clm (not tied)."""

    corpus = "image-text"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return "multimodal_cfg" in config.get("model_cfg", config)

    def network(self, config: FamilyConfig) -> NetworkSpec:
        said = _CocaConfig(config)
        text, vision = said.text, said.vision
        width, queries = text["width"], vision["attn_pooler_queries"]
        words = {"embedding": "token", "hidden_size": width, "vocab_size": text["vocab_size"],
                 "max_positions": text["context_length"], "token_types": 0, "norm": None, "dropout": 0.0}  # fmt: skip
        size, patch = vision["image_size"], vision["patch_size"]
        image = image_stream(
            vision["width"], size, patch, normalisation="clip", bias=False, norm=True, norm_eps=NORM_EPS, dropout=0.0
        )
        streams = {
            "text": words,
            "padding": dict(words),
            "class": {"embedding": "queries", "hidden_size": width, "count": 1},
            "image": image,
            "captioning": {"embedding": "queries", "hidden_size": said.size, "count": queries},
        }
        tie = {f"padding.{table}": f"text.{table}" for table in ("token", "position")}
        return NetworkSpec(streams, [*said.image_layers(), *said.text_layers()], tie=tie)

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        compared = {"text": "class", "image": "captioning", "tap": TAP, "pool_text": "first", "pool_image": "first"}
        itc = {"objective": "vision.itc", "size": _CocaConfig(config).size, "norm": False, **compared}
        return {"itc": itc, "clm": {"objective": "clm", "head": {"tied": False}}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        said = _CocaConfig(config)
        images, texts, decoders = (part["layers"] for part in (said.vision, said.text, said.decoder))
        pool, text = images + 1, images + 4
        decoder = text + texts + 2
        return [
            SameTensor("text.token_embedding.weight", "embeddings.text.token.weight"),
            EndToken(("text.cls_emb", "text.positional_embedding"), "embeddings"),
            ClassToken(("visual.class_embedding", "visual.positional_embedding"), IMAGE, leading=False),
            patch_map("visual.conv1", said.vision["width"], said.vision["patch_size"]),
            *both("visual.ln_pre", f"{IMAGE}.norm"),
            *_blocks("visual.transformer.resblocks", range(images)),
            *both("visual.attn_pool.ln_k", f"layers.{images}.norm"),
            SameTensor("visual.attn_pool.query", "embeddings.captioning.table.weight"),
            *both("visual.attn_pool.ln_q", f"layers.{pool}.norm"),
            *divided_attention(
                "visual.attn_pool.attn", f"layers.{pool + 1}.attention", said.size, said.size == said.vision["width"]
            ),
            *both("visual.ln_post", f"layers.{pool + 2}.norm"),
            TransposedTensor("visual.proj", "itc.space.projections.captioning.weight"),
            *_blocks("text.transformer.resblocks", range(text, text + texts)),
            *both("text.ln_final", f"layers.{text + texts}.norm"),
            TransposedTensor("text.text_projection", "itc.space.projections.class.weight"),
            *_blocks("text_decoder.resblocks", range(decoder, decoder + 2 * decoders, 2)),
            *_crosses("text_decoder.cross_attn", range(decoder + 1, decoder + 2 * decoders, 2), said.size),
            *both("text_decoder.ln_final", f"layers.{decoder + 2 * decoders}.norm"),
            TransposedTensor("text_decoder.text_projection", "clm.output.weight"),
            SameTensor("logit_scale", "itc.logit_scale"),
        ]

    def visibility(self, config: FamilyConfig) -> Visibility:
        return "causal"

    def sequence(self, config: FamilyConfig) -> Spec:
        transform = {"transform": "vision.text_class", "length": _CocaConfig(config).text["context_length"]}
        return {"builder": "document", "visibility": "causal", "begin": "bos", "end": "eos", "transforms": [transform]}

    def task(self, config: FamilyConfig) -> Spec:
        said = _CocaConfig(config)
        shape = {"size": said.vision["image_size"], "patch": said.vision["patch_size"]}
        image = {"image_processor": "vision.patches", **shape, "resize": "crop", "crop_scale": 0.9, "class_row": True}
        queries = {"stream": "captioning", "count": said.vision["attn_pooler_queries"], "unread": 1}
        transforms = [*self.sequence(config)["transforms"], {"transform": "queries", **queries}]
        return captions(self, config, ["clm", "itc"], image, captions="one", transforms=transforms)

    def config(self, described: ModelDescription) -> dict[str, Any]:
        streams, layers = described.streams, described.layers
        words, image, pooled = streams["text"], streams["image"], streams["captioning"]
        looks = _found(
            layers, "self layers of the image", lambda one: one.get("stream") == "image" and "num_heads" in one
        )
        reads = _found(layers, "joint layers", lambda one: bool(one.get("streams")))
        writes = _found(layers, "layers that read captioning", lambda one: one.get("to") == "captioning")
        pool = _found(layers, "a pooler of the image", lambda one: one.get("to") == "image")[0]
        context = {"context_length": words["max_positions"], "vocab_size": words["vocab_size"]}
        return {
            "model_cfg": {
                "embed_dim": pooled["hidden_size"],
                "quick_gelu": looks[0]["activation"] == "quick_gelu",
                "vision_cfg": {
                    "image_size": image_size_of(image),
                    "patch_size": image["patch"],
                    "width": image["hidden_size"],
                    "layers": len(looks),
                    "head_width": image["hidden_size"] // looks[0]["num_heads"],
                    "mlp_ratio": looks[0]["intermediate_size"] / image["hidden_size"],
                    "attentional_pool": True,
                    "attn_pooler_heads": pool["num_heads"],
                    "attn_pooler_queries": pooled["count"],
                    "output_tokens": True,
                },
                "text_cfg": {**context, **_sizes(words, reads), "embed_cls": True, "output_tokens": True},
                "multimodal_cfg": {**context, **_sizes(words, writes)},
                "custom_text": True,
            }
        }


class _CocaConfig:
    """The options of a configuration, with open_clip's defaults.

    Raises:
        WorkbenchError: an option has a value that ours does not support.
    """

    def __init__(self, config: FamilyConfig) -> None:
        model = FamilyConfig(config.get("model_cfg", config))
        for part, options in OTHERS.items():
            for name, allowed in options.items():
                found = model[part].get(name, False if name in ("attentional_pool", "embed_cls") else allowed)
                if found != allowed:
                    raise WorkbenchError(f"{part}.{name} = {found!r}; allowed: {allowed!r}")
        self.size = int(model["embed_dim"])
        self.vision, self.text = (
            {**given, **model[part]} for given, part in ((VISION, "vision_cfg"), (TEXT, "text_cfg"))
        )
        self.decoder = {**TEXT, **model["multimodal_cfg"]}
        widths = {self.text["width"], self.decoder["width"], self.size}
        if len(widths) > 1:
            raise WorkbenchError(
                f"text {self.text['width']}, decoder {self.decoder['width']} and embed_dim {self.size} must be equal "
                "widths: "
                "the decoder reads both"
            )
        self.activation = "quick_gelu" if model.get("quick_gelu") else "gelu"

    def block(self, width: int, heads: int, ratio: float) -> Spec:
        plain = {"norm_place": "pre", "norm_eps": NORM_EPS, "dropout": 0.0, "attention_dropout": 0.0}
        return {"num_heads": heads, "intermediate_size": int(width * ratio), "activation": self.activation, **plain}

    def image_layers(self) -> list[Spec]:
        vision = self.vision
        block = self.block(vision["width"], vision["width"] // vision["head_width"], vision["mlp_ratio"])
        norm = {"layer": "norm", "stream": "captioning", "norm_eps": NORM_EPS}
        heads = vision["attn_pooler_heads"]
        return [
            {"layer": "self", "stream": "image", **block, "repeat": vision["layers"]},
            {**norm, "stream": "image"},
            norm,
            {"layer": "vision.attention_pool", "stream": "captioning", "to": "image", "num_heads": heads},
            norm,
        ]

    def text_layers(self) -> list[Spec]:
        text, decoder = self.text, self.decoder
        width, norm = text["width"], {"layer": "norm", "norm_eps": NORM_EPS}
        inner = self.block(width, decoder["heads"], decoder["mlp_ratio"])
        reading = {"layer": "cross", "stream": "text", "to": "captioning", "self_attention": False, **inner}
        group = [{"layer": "self", "stream": "text", **inner}, reading]
        block = self.block(width, text["heads"], text["mlp_ratio"])
        return [
            {"layer": "joint", "streams": TEXTS, **block, "repeat": text["layers"]},
            {**norm, "stream": "class"},
            {"layer": "tap", "name": TAP},
            {"group": group, "repeat": decoder["layers"]},
            {**norm, "stream": "text"},
        ]


@dataclass(frozen=True)
class EndToken(Stack):
    """The class token after a text, and the table of positions whose last row is its own: their sum, as the only query
    of a stream, and the table of the words' positions. When written, the class token has the sum."""

    @property
    def ours(self) -> tuple[str, ...]:
        return (f"{self.target}.class.table.weight", f"{self.target}.text.position.weight")

    def read(self, state: State) -> dict[str, Tensor]:
        token, table = (state[name] for name in self.sources)
        return dict(zip(self.ours, ((token + table[-1])[None], table[:-1]), strict=True))

    def write(self, state: State) -> dict[str, Tensor]:
        token, table = (state[name] for name in self.ours)
        return dict(zip(self.sources, (token[0], torch.cat([table, torch.zeros_like(token)])), strict=True))


def _found(layers: list[Spec], what: str, wanted: Callable[[Spec], bool]) -> list[Spec]:
    """
    Raises:
        LookupError: there is no such layer.
    """
    found = [one for one in layers if wanted(one)]
    if not found:
        raise LookupError(what)
    return found


def _sizes(words: Spec, layers: list[Spec]) -> dict[str, Any]:
    width = words["hidden_size"]
    ratio = layers[0]["intermediate_size"] / width
    return {"width": width, "heads": layers[0]["num_heads"], "layers": len(layers), "mlp_ratio": ratio}


def _blocks(theirs: str, places: Collection[int]) -> Iterator[Rule]:
    for i, place in enumerate(places):
        block, ours = f"{theirs}.{i}", f"layers.{place}"
        for p in ("weight", "bias"):
            yield SameTensor(f"{block}.attn.in_proj_{p}", f"{ours}.attention.attention.qkv.{p}")
        yield from both(f"{block}.attn.out_proj", f"{ours}.attention.attention.output")
        yield from both(f"{block}.ln_1", f"{ours}.attention.residual.norm")
        yield from _feed_forward(block, ours)


def _crosses(theirs: str, places: Collection[int], size: int) -> Iterator[Rule]:
    for i, place in enumerate(places):
        block, ours = f"{theirs}.{i}", f"layers.{place}"
        yield from divided_attention(f"{block}.attn", f"{ours}.cross_attention.attention", size, same=True)
        yield from both(f"{block}.ln_1", f"{ours}.cross_attention.residual.norm")
        yield from both(f"{block}.ln_1_kv", f"{ours}.cross_attention.key_norm")
        yield from _feed_forward(block, ours)


def _feed_forward(theirs: str, ours: str) -> Iterator[Rule]:
    yield from both(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.network.inner")
    yield from both(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.network.outer")
    yield from both(f"{theirs}.ln_2", f"{ours}.feed_forward.residual.norm")
