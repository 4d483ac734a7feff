"""Masked region classification by the detector's distribution (ViLBERT, arXiv:1908.02265, 3.1; UNITER's mrc-kl).

    L = sum over hidden rows i of KL(p_i || softmax(U t(h_i) + b)),   t(h) = LayerNorm(gelu(W h + c))

p_i is the stored distribution (`scores`). The divergence of a row is the sum over the classes; UNITER's code takes the
mean over them, too, which is a weight of 1 / num_classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from vision.objectives._masked_regions import MaskedRegions
from vision.objectives.mrc import MrcHead
from vision.sequences.region_targets import stored
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Share, Size, SomeShare, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class MrcKl(MaskedRegions):
    """Masked region classification with KL divergence to the detector's distribution (ViLBERT, arXiv:1908.02265;
    UNITER's mrc-kl).

    Args:
        num_classes: of the detector, its background included (Visual Genome: 1,601).
        norm: a LayerNorm in the head; VL-BERT has none.
        rate, zero, random, matched_only, stream: which rows are hidden, and how (`MaskedRegions`).
    """

    reads = ("regions",)

    def __init__(
        self,
        num_classes: Size,
        norm: bool = True,
        rate: SomeShare = 0.15,
        zero: Share = 1.0,
        random: Share = 0.0,
        matched_only: bool = True,
        stream: Word = "image",
    ) -> None:
        super().__init__(rate, zero, random, matched_only, stream)
        self.num_classes, self.norm = num_classes, norm

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        scores = stored(sequence, self.stream, "scores", self.name)
        if scores.ndim != 2 or scores.shape[1] != self.num_classes:
            raise WorkbenchError(
                f"objective {self.name!r}: sequence {sequence.key!r} has the distributions {scores.shape} of its "
                f"regions; expected {self.num_classes} classes. Set num_classes to those of the detector"
            )
        return {"scores": scores[rows].astype(np.float32)}

    def head(self, network: Network) -> Head:
        return MrcKlHead(network.sizes[self.stream], self.num_classes, self.stream, self.norm)


class MrcKlHead(MrcHead):
    """The head of `mrc`, whose targets are distributions."""

    def forward(self, inputs: HeadInputs) -> LossOutput:
        states = inputs.states  # without targets too: other ranks run the network
        if not inputs.targets:
            return LossOutput(self.output.bias.sum() * 0, {})
        logits = self.logits(states[self.stream][inputs.targets["rows"]]).float()
        wanted = inputs.targets["scores"]
        with torch.no_grad():
            right = (logits.argmax(-1) == wanted.argmax(-1)).sum()
        loss = F.kl_div(logits.log_softmax(-1), wanted, reduction="sum")
        return LossOutput(loss, {"accuracy": (right, float(len(wanted)))})
