"""timm's Vision Transformers (Dosovitskiy et al., arXiv:2010.11929; DeiT, arXiv:2012.12877, with a class token alone).

Their configuration names an architecture, from which the number of heads follows: no tensor has it. Everything else
follows from the shapes. The written configuration has `model_args`, so that `timm.create_model` builds the same
network.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from vision.images.transforms import NORMALISATIONS, Normalisation
from vision.interop.patch_names import IMAGE, ClassToken, image_size_of, image_stream, patch_map
from workbench.core.errors import WorkbenchError
from workbench.interop.bert_names import both
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule, SameTensor
from workbench.recipe.spec import NetworkSpec

PATCHES, TABLE = "patch_embed.proj", "pos_embed"
EPS = 1e-6  # of all their norms
PLAIN = "vit_base_patch16_224"
"""An architecture without components of its own: differences are in `model_args`."""
KNOWN = re.compile(
    rf"(cls_token|{TABLE}|{re.escape(PATCHES)}\.(weight|bias)|norm\.(weight|bias)|(fc_norm|head|pre_logits)\b.*|"
    r"blocks\.\d+\.(norm1|attn\.qkv|attn\.proj|norm2|mlp\.fc1|mlp\.fc2)\.(weight|bias))"
)
MAPS = {
    "norm1": "attention.residual.norm",
    "attn.qkv": "attention.attention.qkv",
    "attn.proj": "attention.attention.output",
    "norm2": "feed_forward.residual.norm",
    "mlp.fc1": "feed_forward.network.inner",
    "mlp.fc2": "feed_forward.network.outer",
}


class TimmVit(CheckpointFamily):
    """timm's ViT and DeiT: an `image` stream of patches, `self` layers with norms in front, a last `norm`."""

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return f"{PATCHES}.weight" in names and "blocks.0.attn.qkv.weight" in names

    def network(self, config: FamilyConfig) -> NetworkSpec:
        about = FamilyConfig(config["model_args"])
        size, heads = about["embed_dim"], about["num_heads"]
        normalisation = _normalisation(config.get("pretrained_cfg", {}))
        image = image_stream(size, about["img_size"], about["patch_size"], normalisation=normalisation, dropout=0.0)
        layer = {
            "layer": "self",
            "stream": "image",
            "num_heads": heads,
            "intermediate_size": round(about["mlp_ratio"] * size),
            "norm_place": "pre",
            "norm_eps": EPS,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "repeat": about["depth"],
        }
        return NetworkSpec({"image": image}, [layer, {"layer": "norm", "stream": "image", "norm_eps": EPS}])

    def rules(self, config: FamilyConfig) -> list[Rule]:
        about = FamilyConfig(config["model_args"])
        depth = about["depth"]
        return [
            ClassToken(("cls_token", TABLE), IMAGE),
            patch_map(PATCHES, about["embed_dim"], about["patch_size"]),
            SameTensor(f"{PATCHES}.bias", f"{IMAGE}.project.bias"),
            *(rule for i in range(depth) for one, ours in MAPS.items() for rule in _both(i, one, ours)),
            *both("norm", f"layers.{depth}.norm"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        image, first = described.streams["image"], described.layers[0]
        mean, std = NORMALISATIONS[image["normalisation"]]
        return {
            "architecture": PLAIN,
            "num_classes": 0,
            "model_args": {
                "img_size": image_size_of(image),
                "patch_size": image["patch"],
                "embed_dim": image["hidden_size"],
                "depth": len(described.layers) - 1,
                "num_heads": first["num_heads"],
                "mlp_ratio": first["intermediate_size"] / image["hidden_size"],
                "num_classes": 0,
            },
            "pretrained_cfg": {"mean": list(mean), "std": list(std)},
        }

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        strange = [name for name in state if not KNOWN.fullmatch(name)]
        lacking = [name for name in ("cls_token", TABLE) if name not in state]
        if strange or lacking:
            what = f"it has {strange[0]}" if strange else f"it has no {lacking[0]}"
            raise WorkbenchError(f"{what}; allowed: the plain ViT with a class token")
        weight, table = state[f"{PATCHES}.weight"], state[TABLE]
        side = round((table.shape[1] - 1) ** 0.5)
        if side * side != table.shape[1] - 1:
            raise WorkbenchError(f"{TABLE} has {table.shape[1]} rows: needed: a class token and a square of patches")
        stated = dict(config.get("model_args", {}))
        shapes = {
            "img_size": side * weight.shape[-1],
            "patch_size": weight.shape[-1],
            "embed_dim": weight.shape[0],
            "depth": 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks.")),
            "mlp_ratio": state["blocks.0.mlp.fc1.weight"].shape[0] / weight.shape[0],
        }
        return FamilyConfig({**config, "model_args": {**shapes, "num_heads": _heads(config, stated)}})


def _both(number: int, theirs: str, ours: str) -> list[Rule]:
    return both(f"blocks.{number}.{theirs}", f"layers.{number}.{ours}")


def _heads(config: FamilyConfig, stated: Mapping[str, Any]) -> int:
    """The number of heads of the architecture."""
    if "num_heads" in stated:
        return int(stated["num_heads"])
    timm = importlib.import_module("timm")
    name = config.get("architecture")
    if not isinstance(name, str) or not timm.is_model(name):
        raise WorkbenchError(
            f"architecture = {name!r}: the tensors do not determine the number of heads; name one of timm's in a "
            f'config.json next to them: {{"architecture": "{PLAIN}"}}'
        )
    with torch.device("meta"):
        return int(timm.create_model(name, pretrained=False).blocks[0].attn.num_heads)


def _normalisation(about: Mapping[str, Any]) -> Normalisation:
    """The normalisation of the pixels."""
    if "mean" not in about:
        return "half"
    stated = (tuple(about["mean"]), tuple(about.get("std", ())))
    for name, values in NORMALISATIONS.items():
        if stated == values:
            return name
    raise WorkbenchError(f"pretrained_cfg.mean, std = {stated}; allowed: {NORMALISATIONS}")
