"""A backbone inside the model; its grid of features are the rows of the `image` stream."""

from __future__ import annotations

from torch import Tensor, nn

from vision.features.backbones import load
from vision.models.embeddings._positions import GridPositions, Positions
from vision.models.embeddings._rows import ImageTypes, field, hide, vector
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Cells, Dropout, Epsilon, Images, Location, Name, Side, Size


class GridEmbedding(nn.Module):
    """Grid features of a timm backbone inside the model (Pixel-BERT). The backbone is frozen or trained, and its
    features are projected.

    LN(W feature + position + type); `pixels` come as bytes and the backbone normalises them as it was trained.

    Args:
        backbone: name of a timm network.
        weights: file or package with its weights (see `vision.features.backbones.load`); None starts from random ones.
        size: side of the images in pixels.
        grid: rows and columns of features.
        trainable: whether the backbone is trained; a frozen one also keeps its batch statistics.
        images: how many images a sequence may have, distinguished by a learned vector each (`media` of the builder).
    """

    reached_by_some = ("mask",)

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
        images: Images = 1,
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
        self.images = images
        self.image_types = ImageTypes(images, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`pixels` uint8 [images, 3, size, size], `boxes` [rows, 4], `masked` [rows], and where cells were drawn `cell`
        [rows], equally many of each image -> [rows, hidden_size]."""
        features, boxes = self.backbone(field(fields, "pixels", self)), fields["boxes"]
        if "cell" in fields and len(features):
            cells = fields["cell"].view(len(features), -1, 1)
            features = features.gather(1, cells.expand(-1, -1, features.shape[-1]))
        features = features.flatten(0, 1)
        if len(features) != len(boxes):
            raise WorkbenchError(
                f"image stream: the backbone returns {self.backbone.grid} x {self.backbone.grid} rows an image, "
                f"{len(features)} in all, but the batch has {len(boxes)}; set the same grid for vision.pixels"
            )
        hidden = self.project(hide(features, fields.get("masked"), self.mask)) + self.positions(boxes)
        return self.dropout(self.norm(self.image_types(hidden + self.type_vector, fields)))
