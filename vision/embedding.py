"""Embeddings of the `image` stream: patches, stored regions, or a backbone inside the model.

All have `project`, the linear map from a row's features to the hidden size (masked feature regression ties its
output to it), and replace the features of rows whose `masked` is set before projecting them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from vision.backbones import load
from vision.boxes import WHOLE, box_numbers
from workbench.bounds import Cells, Dropout, Epsilon, Location, Name, Side, Size
from workbench.errors import WorkbenchError

Positions = Literal["1d", "2d"]
PatchGrid = Annotated[int, Ge(2), Le(1024)]  # a single cell would be the whole image, whose box is the class token's


class PatchEmbedding(nn.Module):
    """W patch + position + type of each patch (ViT, arXiv:2010.11929; ViLT, arXiv:2102.03334).

    Positions are learned, one per cell ("1d", as published) or the sum of one per row and one per column ("2d").
    A row whose box is the whole image gets a learned vector instead: the class token. Masked patches are replaced
    by a learned patch.

    Args:
        grid: patches per side.
        patch: side of a patch in pixels.
        norm: a LayerNorm at the end (CLIP's `ln_pre`).
    """

    def __init__(
        self,
        hidden_size: Size,
        grid: PatchGrid,
        patch: Side,
        *,
        positions: Positions = "1d",
        norm: bool = False,
        norm_eps: Epsilon = 1e-5,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.shape = {"patch": patch, "grid": grid}
        self.project = nn.Linear(3 * patch * patch, hidden_size)
        self.positions = GridPositions(hidden_size, grid, positions)
        self.whole = vector(hidden_size)
        self.type_vector = vector(hidden_size)
        self.mask = vector(3 * patch * patch)
        self.norm = nn.LayerNorm(hidden_size, norm_eps) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`patches` [rows, 3 * patch * patch], `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        patches = hide(_field(fields, "patches", self), fields.get("masked"), self.mask)
        boxes = fields["boxes"]
        cells = self.project(patches) + self.positions(boxes)
        whole = (boxes == boxes.new_tensor(WHOLE)).all(1, keepdim=True)
        hidden = torch.where(whole, self.whole.to(cells.dtype), cells)
        return self.dropout(self.norm(hidden + self.type_vector))


class RegionEmbedding(nn.Module):
    """Region features and their boxes, in the published variants.

    | | box_size | norm_parts | average | norm_sum | type_vector | mask_vector |
    |---|---|---|---|---|---|---|
    | UNITER (arXiv:1909.11740): LN(LN(W f) + LN(W b) + type)   | 7 | yes | no  | yes | yes | yes |
    | LXMERT (arXiv:1908.07490): (LN(W f) + LN(W b)) / 2        | 4 | yes | yes | no  | no  | no  |
    | ViLBERT (arXiv:1908.02265): LN(W f + W b)                 | 5 | no  | no  | yes | no  | no  |
    | VisualBERT (arXiv:1908.03557): LN(W f + type)             | 0 | no  | no  | yes | yes | no  |

    The defaults are UNITER's. A masked row's features are zero; `mask_vector` adds a learned vector to them.
    """

    def __init__(
        self,
        hidden_size: Size,
        feature_size: Size,
        *,
        box_size: Literal[0, 4, 5, 7] = 7,
        norm_parts: bool = True,
        average: bool = False,
        norm_sum: bool = True,
        type_vector: bool = True,
        mask_vector: bool = True,
        norm_eps: Epsilon = 1e-12,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.box_size = box_size
        self.scale = 0.5 if average else 1.0

        def norm(wanted: bool) -> nn.Module:
            return nn.LayerNorm(hidden_size, norm_eps) if wanted else nn.Identity()

        self.project = nn.Linear(feature_size, hidden_size)
        self.feature_norm = norm(norm_parts)
        if box_size:
            self.box = nn.Linear(box_size, hidden_size)
            self.box_norm = norm(norm_parts)
        self.norm = norm(norm_sum)
        self.type_vector = vector(hidden_size) if type_vector else None
        self.mask = vector(feature_size) if mask_vector else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, feature_size], `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        features = hide(_field(fields, "features", self), fields.get("masked"), self.mask)
        if features.shape[1] != self.project.in_features:
            raise WorkbenchError(
                f"image stream: the features have {features.shape[1]} numbers, the embedding's feature_size is "
                f"{self.project.in_features}; set feature_size to what the corpus holds"
            )
        hidden = self.feature_norm(self.project(features))
        if self.box_size:
            hidden = hidden + self.box_norm(self.box(box_numbers(fields["boxes"], self.box_size)))
        hidden = hidden * self.scale
        if self.type_vector is not None:
            hidden = hidden + self.type_vector
        return self.dropout(self.norm(hidden))


class GridEmbedding(nn.Module):
    """A timm backbone inside the model: its grid features, frozen or trained, projected (Pixel-BERT's shape).

    LN(W feature + position + type); `pixels` come as bytes and the backbone normalises them as it was trained.

    Args:
        backbone: name of a timm network.
        weights: file or package with its weights (see `vision.backbones.load`); None starts from random ones.
        size: side of the images in pixels.
        grid: rows and columns of features.
        trainable: whether the backbone is trained; a frozen one also keeps its batch statistics.
    """

    def __init__(
        self,
        hidden_size: Size,
        backbone: Name,
        size: Side,
        grid: Cells,
        *,
        weights: Location | None = None,
        trainable: bool = False,
        positions: Positions = "2d",
        norm_eps: Epsilon = 1e-12,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.shape = {"size": size, "grid": grid}
        self.backbone = load(backbone, weights, size=size, grid=grid, trainable=trainable)
        self.project = nn.Linear(self.backbone.width, hidden_size)
        self.positions = GridPositions(hidden_size, grid, positions)
        self.type_vector = vector(hidden_size)
        self.mask = vector(self.backbone.width)
        self.norm = nn.LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`pixels` uint8 [images, 3, size, size], `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        features = self.backbone(_field(fields, "pixels", self)).flatten(0, 1)
        boxes = fields["boxes"]
        if len(features) != len(boxes):
            raise WorkbenchError(
                f"image stream: the backbone gives {self.backbone.grid} x {self.backbone.grid} rows an image, "
                f"{len(features)} in all, the batch has {len(boxes)}; give vision.inputs:Pixels the same grid"
            )
        hidden = self.project(hide(features, fields.get("masked"), self.mask)) + self.positions(boxes)
        return self.dropout(self.norm(hidden + self.type_vector))


class GridPositions(nn.Module):
    """Learned positions of a grid's cells, found by their boxes: one table, or one for rows and one for columns."""

    def __init__(self, hidden_size: int, grid: int, positions: Positions) -> None:
        super().__init__()
        self.grid = grid
        self.tables = nn.ModuleList(
            [nn.Embedding(grid * grid, hidden_size)]
            if positions == "1d"
            else [nn.Embedding(grid, hidden_size), nn.Embedding(grid, hidden_size)]
        )

    def forward(self, boxes: Tensor) -> Tensor:
        """Boxes [rows, 4] of cells -> [rows, hidden_size]."""
        column, row = (boxes[:, :2] * self.grid).round().long().clamp(0, self.grid - 1).unbind(1)
        if len(self.tables) == 1:
            return self.tables[0](row * self.grid + column)
        return self.tables[0](row) + self.tables[1](column)


def vector(size: int) -> nn.Parameter:
    """A learned vector [size], from N(0, 0.02^2)."""
    return nn.Parameter(torch.randn(size) * 0.02)


def hide(features: Tensor, masked: Tensor | None, mask: Tensor | None) -> Tensor:
    """Features [rows, n] with those of masked rows replaced by `mask` [n], or by zeros."""
    if masked is None:
        return features
    filling = features.new_zeros(()) if mask is None else mask.to(features.dtype)
    return torch.where(masked[:, None], filling, features)


def _field(fields: dict[str, Tensor], name: str, embedding: nn.Module) -> Tensor:
    if name not in fields:
        raise WorkbenchError(
            f"image stream: {type(embedding).__name__} needs {name!r}, the batch has {', '.join(sorted(fields))}; let "
            "the recipe's `image:` and the embedding agree (Patches with PatchEmbedding, Regions with RegionEmbedding, "
            "Pixels with GridEmbedding)"
        )
    return fields[name]
