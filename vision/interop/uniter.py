"""Weights of the original UNITER release (github.com/ChenRocks/UNITER) under our names.

    network   embeddings text + image (vision.regions), joint layers, text pooler
    heads     mlm.*, mrfr.* (tied), itm.*

Labels of matching agree: 1 = matched.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from workbench.interop.names import Fuse, Rename, Rule, convert

TEXT_TYPE = "uniter.embeddings.token_type_embeddings.weight"
IMAGE_MASK = "uniter.img_embeddings.mask_embedding.weight"
TIED = ("cls.predictions.decoder.weight", "feat_regress.weight")
_LAYER = "uniter.encoder.layer.{i}"


def both(theirs: str, ours: str) -> list[Rule]:
    """The rules of a weight and its bias."""
    return [Rename(f"{theirs}.{p}", f"{ours}.{p}") for p in ("weight", "bias")]


def fused(theirs: tuple[str, ...], ours: str) -> list[Rule]:
    """The rules of several linear maps that we keep as one."""
    return [Fuse(tuple(f"{name}.{p}" for name in theirs), f"{ours}.{p}") for p in ("weight", "bias")]


RULES: list[Rule] = [
    Rename("uniter.embeddings.word_embeddings.weight", "embeddings.text.token.weight"),
    Rename("uniter.embeddings.position_embeddings.weight", "embeddings.text.position.weight"),
    Rename(TEXT_TYPE, "embeddings.text.token_type.weight"),
    *both("uniter.embeddings.LayerNorm", "embeddings.text.norm"),
    *both("uniter.img_embeddings.img_linear", "embeddings.image.project"),
    *both("uniter.img_embeddings.img_layer_norm", "embeddings.image.feature_norm"),
    *both("uniter.img_embeddings.pos_linear", "embeddings.image.box"),
    *both("uniter.img_embeddings.pos_layer_norm", "embeddings.image.box_norm"),
    *both("uniter.img_embeddings.LayerNorm", "embeddings.image.norm"),
    *fused(
        tuple(f"{_LAYER}.attention.self.{n}" for n in ("query", "key", "value")), "layers.{i}.attention.attention.qkv"
    ),
    *both(f"{_LAYER}.attention.output.dense", "layers.{i}.attention.attention.output"),
    *both(f"{_LAYER}.attention.output.LayerNorm", "layers.{i}.attention.residual.norm"),
    *both(f"{_LAYER}.intermediate.dense", "layers.{i}.feed_forward.network.inner"),
    *both(f"{_LAYER}.output.dense", "layers.{i}.feed_forward.network.outer"),
    *both(f"{_LAYER}.output.LayerNorm", "layers.{i}.feed_forward.residual.norm"),
    *both("uniter.pooler.dense", "poolers.text.dense"),
    Rename("cls.predictions.bias", "mlm.bias"),
    *both("cls.predictions.transform.dense", "mlm.dense"),
    *both("cls.predictions.transform.LayerNorm", "mlm.norm"),
    Rename("feat_regress.bias", "mrfr.bias"),
    *both("feat_regress.net.0", "mrfr.dense"),
    *both("feat_regress.net.2", "mrfr.norm"),
    *both("itm_output", "itm.classifier"),
]


def from_uniter(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """A UNITER state dict under our names, and the names that we have no place for (its other heads).

    UNITER keeps the type of regions in the text's segment table (row 1) and the mask in a table of two (row 1).
    """
    rest = {name: tensor for name, tensor in state.items() if name not in (*TIED, IMAGE_MASK)}
    ours, left = convert(rest, RULES)
    ours["embeddings.image.type_vector"] = state[TEXT_TYPE][1].clone()
    ours["embeddings.image.mask"] = state[IMAGE_MASK][1].clone()
    return ours, left
