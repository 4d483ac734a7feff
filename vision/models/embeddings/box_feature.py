"""B2T2's embedding of a box (Alberti et al., arXiv:1908.05054): its features and its place, through a map and tanh.

    v_i = tanh(M (f_i + p_i) + c),   p_i = [X(x1); X(x2); Y(y1); Y(y2)]

f are the features of an image network, X and Y tables of a quarter of their width with a row for each of `bins`
intervals of the image's width and height. As in the published code, except that there the image as a whole has no p,
and a box that ends at the right or lower edge has a zero in that place.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vision.models.embeddings._rows import field
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Size


class BoxFeatureEmbedding(nn.Module):
    """Box feature of B2T2 (Alberti et al., arXiv:1908.05054). It is tanh of a linear map of the region's features and
    its embedded corners. The layer `vision.boxes_in_text` adds it to words.

    Args:
        feature_size: numbers of a stored feature, a multiple of 4.
        bins: rows of the tables of places (the released code: a row for four of 224 pixels).
    """

    def __init__(self, hidden_size: Size, feature_size: Size, bins: Count = 56) -> None:
        super().__init__()
        if feature_size % 4:
            raise WorkbenchError(
                f"BoxFeature: feature_size = {feature_size}; allowed: a multiple of 4, as four numbers of a box are "
                "embedded in a quarter of it each"
            )
        self.hidden_size, self.bins = hidden_size, bins
        self.x, self.y = (nn.Embedding(bins, feature_size // 4) for _ in range(2))
        self.project = nn.Linear(feature_size, hidden_size)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, feature_size] of any type, `boxes` [rows, 4] -> [rows, hidden_size]."""
        features = field(fields, "features", self).to(self.project.weight.dtype)
        if features.shape[1] != self.project.in_features:
            raise WorkbenchError(
                f"image stream: the features have {features.shape[1]} numbers, the embedding's feature_size is "
                f"{self.project.in_features}; set feature_size to what the corpus holds"
            )
        places = (field(fields, "boxes", self) * self.bins).long().clamp(0, self.bins - 1)
        x1, y1, x2, y2 = places.unbind(1)
        corners = torch.cat([self.x(x1), self.x(x2), self.y(y1), self.y(y2)], dim=1)
        return torch.tanh(self.project(features + corners))
