"""Names shared by checkpoints of Vision Transformers (Dosovitskiy et al., arXiv:2010.11929): tables of rules.

Patches are a convolution there, a linear map of flattened patches here. Their class token has its own position; here
the row of the whole image is one vector, the sum of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vision.images.transforms import NORMALISATIONS
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import ReshapedTensor, Rule, Stack, State
from workbench.recipe.spec import Spec

IMAGE = "embeddings.image"
BICUBIC = 3  # the library's number


@dataclass(frozen=True)
class ClassToken(Stack):
    """Two tensors of theirs, the class token and the table of positions with its own as row 0, as two of ours: their
    sum as a vector, and the table of the cells. When written, the class token has the sum.

    Attributes:
        leading: dimensions of 1 in front of both (`[1, 1, size]` and `[1, rows, size]`).
    """

    leading: bool = True

    @property
    def ours(self) -> tuple[str, ...]:
        return (f"{self.target}.whole", f"{self.target}.positions.tables.0.weight")

    def read(self, state: State) -> dict[str, Tensor]:
        token, table = (state[name] for name in self.sources)
        table = table[0] if self.leading else table
        return dict(zip(self.ours, (token.flatten() + table[0], table[1:]), strict=True))

    def write(self, state: State) -> dict[str, Tensor]:
        token, cells = (state[name] for name in self.ours)
        table = torch.cat([torch.zeros_like(cells[:1]), cells])
        both = (token[None, None], table[None]) if self.leading else (token, table)
        return dict(zip(self.sources, both, strict=True))


def patch_map(theirs: str, size: int, patch: int) -> Rule:
    """The rule of the weight of the convolution."""
    return ReshapedTensor(
        f"{theirs}.weight", f"{IMAGE}.project.weight", (size, 3, patch, patch), (size, 3 * patch * patch)
    )


def image_stream(hidden_size: int, image_size: int, patch: int, **variant: Any) -> Spec:
    """The embedding of patches, in one of its variants (`vision.patches`).

    Raises:
        WorkbenchError: images are not squares of whole patches, or do not have three channels.
    """
    sides = [image_size, patch]
    if not all(isinstance(side, int) for side in sides) or image_size % patch:
        raise WorkbenchError(
            f"image size {image_size}, patch size {patch}: needed: square patches that fill a square image"
        )
    return {
        "embedding": "vision.patches",
        "hidden_size": hidden_size,
        "grid": image_size // patch,
        "patch": patch,
        "type_vector": False,
        "mask_vector": False,
        **variant,
    }


def square_preprocessor(embedding: Spec, image: Spec) -> dict[str, Any] | None:
    """The settings of the library's CLIP for squares of pixels (`CheckpointFamily.preprocessor`); ViT's do not crop."""
    if image["image_processor"] != KINDS["image_processor"].path("vision.patches"):
        return None
    side, cropped = image["size"], image["resize"] == "crop"
    square = {"height": side, "width": side}
    mean, std = NORMALISATIONS[embedding["normalisation"]]
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": side} if cropped else square,
        "resample": BICUBIC,
        "do_center_crop": cropped,
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(mean),
        "image_std": list(std),
    }


def check_colours(config: FamilyConfig) -> None:
    """
    Raises:
        WorkbenchError: images have other channels than red, green and blue.
    """
    if config.get("num_channels", 3) != 3:
        raise WorkbenchError(f"num_channels = {config['num_channels']}: allowed: 3")


def image_size_of(image: Spec) -> int:
    """The image size of our embedding, in pixels."""
    return int(image["grid"] * image["patch"])
