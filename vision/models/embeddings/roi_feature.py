"""Visual features of regions from a network inside the model (VL-BERT, arXiv:1908.08530, section 3.2)."""

from __future__ import annotations

from torch import Tensor

from vision.features.backbones import load
from vision.models.embeddings._rows import field
from vision.models.embeddings.visual_feature import VisualFeatureEmbedding
from workbench.core.options.bounds import Count, Dropout, Location, Name, Side, Size


class RoiFeatureEmbedding(VisualFeatureEmbedding):
    """Region features that a timm network inside the model computes from pixels (Fast R-CNN as in VL-BERT,
    arXiv:1908.08530, section 3.2). They enter `vision.visual_feature`.

    A region's feature is the mean of the network's last map in its box (bilinear). The published code runs the last
    stage of ResNet-101 on each region by itself. The statistics of batch norms are frozen, as in the published code.

    Args:
        backbone: name of a timm network of convolutions.
        size: side of the images in pixels.
        weights: file or package with its weights (see `vision.features.backbones.load`); None starts from random ones.
        trainable: whether the network is trained.
        waves, dropout: as for `vision.visual_feature`.
    """

    def __init__(
        self,
        hidden_size: Size,
        backbone: Name,
        size: Side,
        *,
        weights: Location | None = None,
        trainable: bool = True,
        waves: Count = 256,
        dropout: Dropout = 0.1,
    ) -> None:
        network = load(backbone, weights, size=size, grid=1, trainable=trainable)
        super().__init__(hidden_size, network.width, waves, dropout)
        self.shape = {"size": size}
        self.backbone = network
        self.train(self.training)

    def train(self, mode: bool = True) -> RoiFeatureEmbedding:
        super().train(mode)
        self.backbone.network.eval()
        return self

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`pixels` uint8 [images, 3, size, size], `boxes` [rows, 4], `first` [rows] (of an image), `masked` [rows] ->
        [rows, hidden_size]."""
        boxes, first = fields["boxes"], field(fields, "first", self)
        images = first.cumsum(0) - 1
        features = self.backbone.in_boxes(self.backbone.maps(field(fields, "pixels", self)), boxes, images)
        return super().forward({**fields, "features": features})
