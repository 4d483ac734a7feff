"""Visual feature embeddings of regions, which other elements share (VL-BERT, arXiv:1908.08530, section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.models.embeddings._rows import field, hide, vector
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Size


class VisualFeatureEmbedding(nn.Module):
    """Visual feature embedding of VL-BERT (arXiv:1908.08530, section 3.2). It is relu(W dropout([sinusoids of the box ;
    feature]) + b). The feature of a masked row is a learned vector.

    The layer `vision.visual_elements` builds elements from them, and adds the last one of an image to its text.

    Args:
        feature_size: numbers of a stored feature.
        waves: sines and as many cosines of each of the four numbers of a box (the released code: 256).
        dropout: of the waves and the feature (common/fast_rcnn.py of the released code).
    """

    reached_by_some = ("mask",)

    def __init__(self, hidden_size: Size, feature_size: Size, waves: Count = 256, dropout: Dropout = 0.1) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.feature_size, self.waves = feature_size, waves
        self.combine = nn.Linear(8 * waves + feature_size, hidden_size)
        self.mask = vector(feature_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, feature_size] of any type, `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        features = field(fields, "features", self).to(self.combine.weight.dtype)
        if features.shape[1] != self.feature_size:
            raise WorkbenchError(
                f"image stream: the features have {features.shape[1]} numbers, the embedding's feature_size is "
                f"{self.feature_size}; set feature_size to what the corpus holds"
            )
        features = self.dropout(hide(features, fields.get("masked"), self.mask))
        boxes = self.dropout(box_waves(fields["boxes"], self.waves).to(features.dtype))
        # in two products, which avoids copying both into one wide matrix
        size = boxes.shape[1]
        hidden = F.linear(boxes, self.combine.weight[:, :size]) + F.linear(features, self.combine.weight[:, size:])
        return F.relu(hidden + self.combine.bias)


def box_waves(boxes: Tensor, waves: int) -> Tensor:
    """Sines and cosines of boxes [rows, 4]: [rows, 4 * 2 * waves] (Vaswani et al.; VL-BERT's geometry embedding).

    Of the centre's x and y, width and height, each times 100: at `waves` rates that fall from 1 to nearly 1 / 1000,
    first the sines of a number, then its cosines.
    """
    low, high = boxes[:, :2], boxes[:, 2:]
    numbers = torch.cat([(low + high) / 2, high - low], dim=1) * 100
    rates = 1000 ** (torch.arange(waves, device=boxes.device, dtype=boxes.dtype) / waves)
    angles = numbers[:, :, None] / rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)
