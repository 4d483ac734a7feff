"""Patches of an image as rows of the `image` stream."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from vision.images.boxes import WHOLE
from vision.images.transforms import NORMALISATIONS, Normalisation, standardise
from vision.models.embeddings._positions import GridPositions, Positions
from vision.models.embeddings._rows import ImageTypes, field, hide, vector
from workbench.core.options.bounds import Dropout, Epsilon, Images, Side, Size

PatchGrid = Annotated[int, Ge(2), Le(1024)]  # a single cell has the class token's box, the whole image


class PatchesEmbedding(nn.Module):
    """Patch embedding of an image (ViT, arXiv:2010.11929; ViLT, arXiv:2102.03334). It is W patch + position + type.

    Pixels come as bytes and are normalised here. Positions are learned, one per cell ("1d", as published) or the sum of
    one per row and one per column ("2d"). A row whose box is the whole image gets a learned vector instead: the class
    token. Masked patches are replaced by a learned patch, or by zeros.

    Args:
        grid: patches per side.
        patch: side of a patch in pixels.
        normalisation: the mean and deviation of each channel: those of a published model whose weights initialise the
            network (`imagenet`, `clip`), or `half`.
        interpolate: positions of patches in another grid, such as that of an image with its own aspect ratio, are
            interpolated from this one (ViLT).
        bias: whether W has one (CLIP's has none).
        type_vector: add a learned vector to every row, which distinguishes them from words.
        mask_vector: a learned patch replaces masked ones.
        norm: a LayerNorm at the end (CLIP's `ln_pre`).
        class_vector: the learned vector of a row whose box is the whole image; without it no row may be one (SigLIP).
        images: how many images a sequence may have, distinguished by a learned vector each (`media` of the builder).
    """

    mean: Tensor
    std: Tensor
    whole_box: Tensor

    reached_by_some = ("mask", "whole")

    def __init__(
        self,
        hidden_size: Size,
        grid: PatchGrid,
        patch: Side,
        *,
        positions: Positions = "1d",
        normalisation: Normalisation = "half",
        interpolate: bool = False,
        bias: bool = True,
        type_vector: bool = True,
        mask_vector: bool = True,
        norm: bool = False,
        class_vector: bool = True,
        images: Images = 1,
        norm_eps: Epsilon = 1e-5,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.patch = patch
        self.shape = {"patch": patch} | ({} if interpolate else {"grid": grid})
        for name, values in zip(("mean", "std"), NORMALISATIONS[normalisation], strict=True):
            self.register_buffer(name, torch.tensor(values), persistent=False)
        self.register_buffer("whole_box", torch.tensor(WHOLE), persistent=False)
        self.project = nn.Linear(3 * patch * patch, hidden_size, bias=bias)
        self.positions = GridPositions(hidden_size, grid, positions, interpolate)
        self.whole = vector(hidden_size) if class_vector else None
        self.type_vector = vector(hidden_size) if type_vector else None
        self.mask = vector(3 * patch * patch) if mask_vector else None
        self.norm = nn.LayerNorm(hidden_size, norm_eps) if norm else nn.Identity()
        self.images = images
        self.image_types = ImageTypes(images, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`patches` uint8 [rows, 3 * patch * patch], `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        patches = hide(self.normalise(field(fields, "patches", self)), fields.get("masked"), self.mask)
        boxes = fields["boxes"]
        cells = self.project(patches) + self.positions(boxes)
        hidden = cells
        if self.whole is not None:
            whole = (boxes == self.whole_box).all(1, keepdim=True)
            hidden = torch.where(whole, self.whole.to(cells.dtype), cells)
        hidden = hidden if self.type_vector is None else hidden + self.type_vector
        return self.dropout(self.norm(self.image_types(hidden, fields)))

    def normalise(self, patches: Tensor) -> Tensor:
        """uint8 [rows, 3 * patch * patch] -> float32, normalised by the mean and deviation of each channel."""
        side = self.patch
        return standardise(patches.unflatten(1, (3, side, side)), self.mean, self.std).flatten(1)
