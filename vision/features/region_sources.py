"""Extractors of region features, for UNITER, LXMERT and ViLBERT: any detector of torchvision, or the cells of a grid.

    source([source.pixels(image, where), ...]) -> per image {features [n, d], boxes [n, 4]}, float32, boxes in 0..1;
                                                  from a detector also classes [n] int64 and confidence [n] float32

Given boxes (`given`) come before the source's own, with a confidence of 1.

With `scores` there is also the distribution over the classes, scores [n, classes] float32. A grid then has classes and
confidence, too: the output of the backbone's own classifier for each cell, instead of the mean of all of them.

`source.identity` is stored with the features (`meta.backbone`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torchvision.models import detection
from torchvision.ops import batched_nms
from torchvision.ops import boxes as box_operations

from vision.features.backbones import GridBackbone, fit, read_weights, weights_hash
from vision.images.boxes import grid_boxes
from vision.images.decoding import EncodedImage
from vision.images.transforms import SquareCrop
from workbench.core.errors import BadValueError, unknown
from workbench.sequences.sequence import Fields

DETECTORS: dict[str, Callable[..., detection.FasterRCNN]] = {
    "fasterrcnn_resnet50_fpn": detection.fasterrcnn_resnet50_fpn,
    "fasterrcnn_resnet50_fpn_v2": detection.fasterrcnn_resnet50_fpn_v2,
    "fasterrcnn_mobilenet_v3_large_fpn": detection.fasterrcnn_mobilenet_v3_large_fpn,
    "fasterrcnn_mobilenet_v3_large_320_fpn": detection.fasterrcnn_mobilenet_v3_large_320_fpn,
}


class RegionSource(Protocol):
    """Interface: an extractor of region arrays from images."""

    identity: str

    def pixels(self, image: bytes, where: str) -> Tensor:
        """The network's input for an encoded image, uint8 [3, height, width].

        Raises:
            BadValueError: the image cannot be used; `where` names it.
        """
        ...

    def __call__(self, pixels: list[Tensor], given: list[np.ndarray] | None = None) -> list[Fields]:
        """The regions of images, which run through the network as one batch.

        Args:
            given: boxes [k, 4] in 0..1 of each image whose features are wanted, too.
        """
        ...


class GridRegions:
    """The cells of a backbone's grid as regions."""

    def __init__(self, backbone: GridBackbone, scores: bool = False) -> None:
        # a quarter less time for a convolutional network, also on a CPU
        self.backbone: GridBackbone = backbone.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.identity = backbone.identity
        self.square = SquareCrop(backbone.size)
        self.boxes = grid_boxes(backbone.grid)
        self.scores = scores
        if scores:
            backbone.check_classifier()

    def pixels(self, image: bytes, where: str) -> Tensor:
        return self.square(EncodedImage(image, where), None)

    @torch.inference_mode()
    def __call__(self, pixels: list[Tensor], given: list[np.ndarray] | None = None) -> list[Fields]:
        maps = self.backbone.maps(torch.stack(pixels).to(self.backbone.mean.device))
        drawn = _as_boxes(given, maps)
        found: list[Fields] = []
        for boxes, own, cells in zip(drawn, self.backbone.inside(maps, drawn), self.backbone.cells(maps), strict=True):
            features = torch.cat([own, cells.float()])
            placed = np.concatenate([boxes.cpu().numpy(), self.boxes])
            fields: Fields = {"features": features.cpu().numpy(), "boxes": placed}
            if self.scores:
                scores = self.backbone.classify(features[None])[0].cpu().numpy()
                fields |= {"classes": scores.argmax(-1), "confidence": scores.max(-1), "scores": scores}
                fields["confidence"][: len(own)] = 1.0
            found.append(fields)
        return found


class Detections(NamedTuple):
    """The kept regions of an image: boxes [k, 4] in pixels, confidence [k], classes [k], scores [k, classes]."""

    boxes: Tensor
    confidence: Tensor
    classes: Tensor
    scores: Tensor


class Detector:
    """Regions of a torchvision Faster R-CNN: the box head's features of its detections.

    The most confident boxes after suppression are kept (IoU 0.5, per class): those above `threshold`, but at least
    `min_regions` and at most `max_regions` (UNITER: 0.2, 10, 100).
    """

    def __init__(
        self,
        name: str,
        network: detection.FasterRCNN,
        *,
        threshold: float,
        min_regions: int,
        max_regions: int,
        scores: bool = False,
    ) -> None:
        self.network = network.eval()
        self.scores = scores
        self.threshold = threshold
        self.min_regions = min_regions
        self.max_regions = max_regions
        kept = f"conf{threshold}:{min_regions}-{max_regions}"
        self.identity = f"torchvision:{name}@{weights_hash(network.state_dict())}:{kept}"

    def pixels(self, image: bytes, where: str) -> Tensor:
        encoded = EncodedImage(image, where)
        shorter, longer = sorted(encoded.size)
        if shorter * self.network.transform.max_size < longer:  # its longer side becomes `max_size` pixels at most
            width, height = encoded.size
            detail = f"the image is {width} x {height}, too thin for a detector; remove the record"
            raise BadValueError(where, detail, image, "image too thin")
        return encoded.pixels()

    @torch.inference_mode()
    def __call__(self, pixels: list[Tensor], given: list[np.ndarray] | None = None) -> list[Fields]:
        device = next(self.network.parameters()).device
        resized, _ = self.network.transform([p.to(device).float() / 255 for p in pixels])
        maps = self.network.backbone(resized.tensors)
        proposals, _ = self.network.rpn(resized, maps)
        heads, sizes = self.network.roi_heads, resized.image_sizes
        pooled = heads.box_head(heads.box_roi_pool(maps, proposals, sizes))
        logits, deltas = heads.box_predictor(pooled)
        candidates = heads.box_coder.decode(deltas, proposals).split([len(p) for p in proposals])
        scores = logits.softmax(-1).split([len(p) for p in proposals])
        chosen = [self._choose(b, s, size) for b, s, size in zip(candidates, scores, sizes, strict=True)]
        if given is not None:
            sides = [logits.new_tensor([width, height, width, height]) for height, width in sizes]
            drawn = [boxes * side for boxes, side in zip(_as_boxes(given, logits), sides, strict=True)]
            pooled = heads.box_head(heads.box_roi_pool(maps, drawn, sizes))
            said = heads.box_predictor(pooled)[0].softmax(-1).split([len(boxes) for boxes in drawn])
            chosen = [_before(*each) for each in zip(drawn, said, chosen, strict=True)]
        features = heads.box_head(heads.box_roi_pool(maps, [c.boxes for c in chosen], sizes))
        split = features.split([len(c.boxes) for c in chosen])
        found = [_fields(f, c, size) for f, c, size in zip(split, chosen, sizes, strict=True)]
        if self.scores:
            for fields, detections in zip(found, chosen, strict=True):
                fields["scores"] = detections.scores.float().cpu().numpy()
        return found

    def _choose(self, boxes: Tensor, scores: Tensor, size: tuple[int, int]) -> Detections:
        """The regions of one image, from boxes [n, classes, 4] and scores [n, classes]."""
        confidence, classes = scores[:, 1:].max(-1)  # class 0 is the background
        classes = classes + 1
        best = boxes[torch.arange(len(boxes), device=boxes.device), classes]
        best = box_operations.clip_boxes_to_image(best, size)
        solid = box_operations.remove_small_boxes(best, 1.0)
        best, confidence, classes, scores = best[solid], confidence[solid], classes[solid], scores[solid]
        order = batched_nms(best, confidence, classes, 0.5)[: self.max_regions]
        confident = int((confidence[order] >= self.threshold).sum())
        keep = order[: max(confident, self.min_regions)]
        return Detections(best[keep], confidence[keep], classes[keep], scores[keep])


def _as_boxes(given: list[np.ndarray] | None, alongside: Tensor) -> list[Tensor]:
    """Given boxes [k, 4] of each image, scaled to pixels; empty if none are given."""
    found = given if given is not None else [np.zeros((0, 4), np.float32)] * len(alongside)
    return [torch.as_tensor(boxes, dtype=torch.float32, device=alongside.device).reshape(-1, 4) for boxes in found]


def _before(boxes: Tensor, scores: Tensor, found: Detections) -> Detections:
    """Given boxes with the detector's scores for them, before its own boxes."""
    own = Detections(boxes, scores.new_ones(len(boxes)), scores[:, 1:].argmax(-1) + 1, scores)
    return Detections(*(torch.cat(pair) for pair in zip(own, found, strict=True)))


def load_detector(
    name: str,
    weights: str | None = None,
    *,
    num_classes: int = 91,
    threshold: float = 0.2,
    min_regions: int = 10,
    max_regions: int = 100,
    scores: bool = False,
) -> Detector:
    """A torchvision detector by name; `weights` is a .safetensors or .pth file, None means random weights.

    Raises:
        WorkbenchError: unknown detector, missing weights, or weights of another network.
    """
    if name not in DETECTORS:
        raise unknown("detector", name, DETECTORS)
    network = DETECTORS[name](weights=None, weights_backbone=None, num_classes=num_classes)
    if weights is not None:
        network.load_state_dict(fit(read_weights(weights), network.state_dict(), f"{weights} -> {name}"))
    kept = {"threshold": threshold, "min_regions": min_regions, "max_regions": max_regions}
    return Detector(name, network, **kept, scores=scores)  # type: ignore[arg-type]


def _fields(features: Tensor, found: Detections, size: tuple[int, int]) -> Fields:
    height, width = size
    relative = found.boxes / found.boxes.new_tensor([width, height, width, height])
    return {
        "features": features.float().cpu().numpy(),
        "boxes": relative.clamp(0, 1).float().cpu().numpy(),
        "classes": found.classes.cpu().numpy(),
        "confidence": found.confidence.float().cpu().numpy(),
    }
