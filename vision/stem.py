"""An embedding of the `image` stream that learns from scratch: a few convolutions in the place of one large patch.

Xiao et al., "Early Convolutions Help Transformers See Better" (arXiv:2106.14881): 3 x 3 convolutions of stride 2, each
with norm and activation, then a 1 x 1 convolution. With n of them a row stands for 2^n x 2^n pixels, as a patch would,
but small models find edges and shapes in a fraction of the steps. The norm is over groups of channels of one image
and not over the batch, so that an image's rows do not depend on its neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vision.embedding import GridPositions, Positions, hide, vector
from vision.transforms import NORMALISATIONS, standardise
from workbench.errors import WorkbenchError

GROUPS = 16
"""Groups of channels that are normalised together: with one, shapes took four times the steps to learn."""


class Convolution(nn.Sequential):
    """A 3 x 3 convolution of stride 2, norm, GELU. Its weights start by fan-in, whatever the recipe's init_range."""

    keeps_values = True

    def __init__(self, channels: int, width: int) -> None:
        convolution = nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False)
        super().__init__(convolution, nn.GroupNorm(GROUPS, width), nn.GELU())


class StemEmbedding(nn.Module):
    """LN(W convolutions(image) + position + type), one row per cell.

    Args:
        grid: rows and columns of cells; the images have grid * 2^len(channels) pixels per side.
        channels: output channels of each convolution.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        hidden_size: int,
        grid: int,
        channels: list[int],
        *,
        positions: Positions = "2d",
        norm_eps: float = 1e-12,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if not channels or any(width % GROUPS for width in channels):
            raise WorkbenchError(
                f"StemEmbedding: channels = {channels}; allowed: one or more multiples of {GROUPS}, one per convolution"
            )
        self.hidden_size = hidden_size
        self.size = grid * 2 ** len(channels)
        blocks = zip([3, *channels], channels, strict=False)
        self.convolutions = nn.Sequential(*(Convolution(i, o) for i, o in blocks))
        self.project = nn.Linear(channels[-1], hidden_size)
        self.positions = GridPositions(hidden_size, grid, positions)
        self.type_vector = vector(hidden_size)
        self.mask = vector(channels[-1])
        self.norm = nn.LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)
        mean, std = NORMALISATIONS["half"]
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`pixels` uint8 [images, 3, size, size], `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        pixels = fields.get("pixels")
        if pixels is None or pixels.shape[-1] != self.size:
            found = "no pixels" if pixels is None else f"images of {pixels.shape[-1]} pixels"
            raise WorkbenchError(
                f"image stream: StemEmbedding reads images of {self.size} x {self.size} pixels, the batch has {found}; "
                f"set `image: {{image: vision.inputs:Pixels, size: {self.size}, grid: {self.positions.grid}}}`"
            )
        cells = self.convolutions(standardise(pixels, self.mean, self.std))
        features = cells.flatten(2).transpose(1, 2).flatten(0, 1)
        hidden = self.project(hide(features, fields.get("masked"), self.mask)) + self.positions(fields["boxes"])
        return self.dropout(self.norm(hidden + self.type_vector))
