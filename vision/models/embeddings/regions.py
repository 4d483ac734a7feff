"""Stored features of regions as rows of the `image` stream."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vision.models.embeddings._rows import ImageTypes, field, hide, vector
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Dropout, Epsilon, Images, Size


class RegionsEmbedding(nn.Module):
    """Embedding of precomputed region features and their boxes, in the published variants.

    | | box_size | norm_parts | average | norm_sum | type_vector | mask_vector |
    |---|---|---|---|---|---|---|
    | UNITER (arXiv:1909.11740): LN(LN(W f) + LN(W b) + type)   | 7 | yes | no  | yes | yes | yes |
    | LXMERT (arXiv:1908.07490): (LN(W f) + LN(W b)) / 2        | 4 | yes | yes | no  | no  | no  |
    | ViLBERT (arXiv:1908.02265): LN(W f + W b)                 | 5 | no  | no  | yes | no  | no  |
    | VisualBERT (arXiv:1908.03557): LN(W f + type)             | 0 | no  | no  | yes | yes | no  |

    The defaults are UNITER's. A masked row's features are zero; `mask_vector` adds a learned vector to them. A sequence
    may have several `images`, distinguished by a learned vector each (`media` of the builder; UNITER, NLVR2).
    """

    reached_by_some = ("mask",)

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
        images: Images = 1,
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
        self.images = images
        self.image_types = ImageTypes(images, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, feature_size] of any type, `boxes` [rows, 4], `masked` [rows] -> [rows, hidden_size]."""
        features = field(fields, "features", self).to(self.project.weight.dtype)
        if features.shape[1] != self.project.in_features:
            raise WorkbenchError(
                f"image stream: the features have {features.shape[1]} numbers, the embedding's feature_size is "
                f"{self.project.in_features}; set feature_size to what the corpus holds"
            )
        features = hide(features, fields.get("masked"), self.mask)
        hidden = self.feature_norm(self.project(features))
        if self.box_size:
            hidden = hidden + self.box_norm(self.box(box_numbers(fields["boxes"], self.box_size)))
        hidden = hidden * self.scale
        if self.type_vector is not None:
            hidden = hidden + self.type_vector
        return self.dropout(self.norm(self.image_types(hidden, fields)))


def box_numbers(boxes: Tensor, size: int) -> Tensor:
    """A published model's input from boxes [rows, 4]: [rows, size].

    4: the corners (LXMERT); 5: and the area (ViLBERT); 7: corners, width, height, area (UNITER).
    """
    if size == 4:
        return boxes
    width, height = boxes[:, 2:3] - boxes[:, 0:1], boxes[:, 3:4] - boxes[:, 1:2]
    if size == 5:
        return torch.cat([boxes, width * height], dim=1)
    if size == 7:
        return torch.cat([boxes, width, height, width * height], dim=1)
    raise ValueError(f"box_size = {size}; allowed: 4 (corners), 5 (and area), 7 (and width, height, area)")
