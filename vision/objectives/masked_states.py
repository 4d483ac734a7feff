"""Masked prediction of states: what a moving average of the network sees in hidden rows (SigLIP 2, arXiv:2502.14786).

    L = sum over hidden rows r of mean over numbers of (p_r - norm(h_r))^2,   p = V LayerNorm(gelu(W g + c)) + b

g are the states of the network, which does not see the rows; h those of its follower, which reads them in another view,
and norm their LayerNorm without weights (data2vec, arXiv:2202.03555, section 3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F
from torch import nn

from vision.objectives._masked_regions import MaskedRegions, RegionHead
from workbench.core.options.bounds import SomeShare, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class MaskedStates(MaskedRegions):
    """Masked prediction of the states of a moving average (SigLIP 2, arXiv:2502.14786, section 2.3; data2vec). Patches
    or regions are hidden from the network, so give it a view of its own.

    Args:
        follower: the network that follows the objective's own.
        seen: the view that the follower reads, in which nothing is hidden.
        rate: share of the rows to hide and predict.
        stream: of the image rows.
    """

    def __init__(
        self, follower: Word = "momentum", seen: Word = "main", rate: SomeShare = 0.5, stream: Word = "image"
    ) -> None:
        super().__init__(rate, matched_only=False, stream=stream)
        self.follower, self.seen = follower, seen

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {}

    def head(self, network: Network) -> Head:
        return MaskedStatesHead(self, self.width(network, self.stream))


class MaskedStatesHead(RegionHead):
    """The layers before the comparison."""

    def __init__(self, options: MaskedStates, hidden_size: int) -> None:
        super().__init__(hidden_size, options.stream)
        self.follower, self.seen = options.follower, options.seen
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        own, slow = inputs.states, inputs.read(self.follower, self.seen).states  # also without rows: other ranks do so
        rows = inputs.targets.get("rows")
        if rows is None:
            return LossOutput(self.output.bias.sum() * 0, {})
        predicted = self.output(self.transform(own[self.stream][rows])).float()
        goal = F.layer_norm(slow[self.stream][rows].detach().float(), predicted.shape[1:])
        return LossOutput((predicted - goal).square().mean(-1).sum(), {})
