"""Masked region feature regression: predict the features of hidden image rows (LXMERT, UNITER; arXiv:1909.11740 3.2).

Regions: the target is the row's own features. Patches: its pixels, normalised by the embedding and then each patch by
itself as in MAE (arXiv:2111.06377). The loss of a row is the mean over the target's numbers, so the mean over rows is
UNITER's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.objectives._masked_regions import MaskedRegions, RegionHead, feature_field
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Share, SomeShare, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class Mrfr(MaskedRegions):
    """Masked region feature regression (LXMERT; UNITER, arXiv:1909.11740, section 3.2): the features of hidden regions
    or patches.

    Args:
        loss: `mse` (UNITER) or `smooth_l1` (LXMERT).
        tied: the output matrix is the transpose of the embedding's projection (UNITER); else a separate matrix.
        rate, zero, random, matched_only, stream: which rows are hidden, and how (`MaskedRegions`).
    """

    def __init__(
        self,
        rate: SomeShare = 0.15,
        zero: Share = 1.0,
        random: Share = 0.0,
        loss: Literal["mse", "smooth_l1"] = "mse",
        tied: bool = True,
        matched_only: bool = True,
        stream: Word = "image",
    ) -> None:
        super().__init__(rate, zero, random, matched_only, stream)
        self.loss = loss
        self.tied = tied

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        fields = sequence.streams[self.stream]
        return {"features": fields[feature_field(fields)][rows]}

    def head(self, network: Network) -> Head:
        hidden_size = network.sizes[self.stream]
        return MrfrHead(
            input_projection(network, self.stream).in_features, hidden_size, self.loss, self.tied, self.stream
        )


class MrfrHead(RegionHead):
    """Dense, gelu, LayerNorm, then the target's width: by the transposed input projection, or a separate matrix.

    It passes its inner states on, as `hidden` [rows, hidden_size], to heads that classify the same rows.
    """

    def __init__(self, feature_size: int, hidden_size: int, loss: str, tied: bool, stream: str = "image") -> None:
        super().__init__(hidden_size, stream)
        self.bias = nn.Parameter(torch.zeros(feature_size))
        self.output = None if tied else nn.Linear(hidden_size, feature_size, bias=False)
        self.function = F.mse_loss if loss == "mse" else F.smooth_l1_loss

    def predict(self, network: Network, hidden: Tensor) -> Tensor:
        """The output of `transform` [rows, hidden_size] -> features [rows, feature_size]."""
        if self.output is not None:
            return self.output(hidden) + self.bias
        return F.linear(hidden, input_projection(network, self.stream).weight.T, self.bias)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        targets, states = inputs.targets, inputs.states  # without targets too: other ranks run the network
        if not targets:
            return LossOutput(self.bias.sum() * 0, {})
        hidden = self.transform(states[self.stream][targets["rows"]])
        predicted = self.predict(inputs.network, hidden).float()
        goal = goal_of(inputs.network, self.stream, targets["features"])
        losses = self.function(predicted, goal, reduction="none").mean(-1)
        with torch.no_grad():
            centred = (goal - goal.mean(0)).square().mean(-1)
        return LossOutput(losses.sum(), {"target_variance": (centred.sum(), float(len(goal)))}, {"hidden": hidden})


def input_projection(network: Network, stream: str) -> nn.Linear:
    """The linear map from the features of image rows to the hidden size, which every image embedding has.

    Raises:
        WorkbenchError: the embedding has none.
    """
    projection = getattr(network.embeddings[stream], "project", None)
    if not isinstance(projection, nn.Linear):
        found = type(network.embeddings[stream]).__name__
        raise WorkbenchError(f"mrfr needs an image embedding with a linear map `project`; {found} has none")
    return projection


def goal_of(network: Network, stream: str, features: Tensor) -> Tensor:
    """The targets of hidden rows: their features, or their patches, each with mean 0 and deviation 1.

    Args:
        features: [rows, feature_size]; for patches bytes.

    Raises:
        WorkbenchError: there are patches, and the embedding has no `normalise`.
    """
    if features.dtype != torch.uint8:
        return features.float()
    normalise = getattr(network.embeddings[stream], "normalise", None)
    if normalise is None:
        found = type(network.embeddings[stream]).__name__
        raise WorkbenchError(f"mrfr of patches needs an image embedding with a method `normalise`; {found} has none")
    patches = normalise(features)
    variance, mean = torch.var_mean(patches, -1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()
