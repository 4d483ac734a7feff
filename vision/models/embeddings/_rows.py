"""Helpers of the embeddings of the `image` stream: learned vectors, and rows with hidden features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError


def vector(size: int) -> nn.Parameter:
    """A learned vector [size], from N(0, 0.02^2)."""
    return nn.Parameter(torch.randn(size) * 0.02)


class ImageTypes(nn.Module):
    """A learned vector for each image of a sequence, added to its rows; none for a single image.

    UNITER distinguishes the two images of NLVR2 in this way (arXiv:1909.11740, section 4): by their types.
    """

    def __init__(self, images: int, hidden_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(images, hidden_size) if images > 1 else None

    def forward(self, hidden: Tensor, fields: dict[str, Tensor]) -> Tensor:
        """Rows [rows, hidden_size] and `image_number` [rows], from 0 (default: all of the first) -> the same shape."""
        if self.table is None:
            return hidden
        return hidden + (self.table(fields["image_number"]) if "image_number" in fields else self.table.weight[0])


def hide(features: Tensor, masked: Tensor | None, mask: Tensor | None) -> Tensor:
    """Features [rows, n] with those of masked rows replaced by `mask` [n], or by zeros."""
    if masked is None:
        return features
    filling = features.new_zeros(()) if mask is None else mask.to(features.dtype)
    return torch.where(masked[:, None], filling, features)


def field(fields: dict[str, Tensor], name: str, embedding: nn.Module) -> Tensor:
    if name not in fields:
        raise WorkbenchError(
            f"image stream: {type(embedding).__name__} needs {name!r}, the batch has {', '.join(sorted(fields))}; let "
            "the recipe's `image_processor:` and the embedding agree (both vision.patches, both vision.regions, "
            "vision.pixels with vision.grid, or vision.region_pixels with vision.roi_feature)"
        )
    return fields[name]
