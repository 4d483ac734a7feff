"""Masked region classification (UNITER, arXiv:1909.11740, 3.2): the detector's classes of hidden image rows.

    L = - sum over hidden rows i of w_i log softmax(U t(h_i) + b)[c_i],   t(h) = LayerNorm(gelu(W h + c))

c_i is the stored class of the region, w_i 1 or the detector's confidence in it (LXMERT). Also VL-BERT's masked RoI
classification (arXiv:1908.08530, 3.3; without the LayerNorm) and Unicoder-VL's masked object classification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.objectives._masked_regions import MaskedRegions, RegionHead
from vision.sequences.region_targets import stored
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Size, SomeShare, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

CONFIDENCES = {"classes": "confidence", "attributes": "attribute_confidence"}
"""The possible targets, and the fields of the detector's confidence in them."""


class Mrc(MaskedRegions):
    """Masked region classification (UNITER, arXiv:1909.11740, section 3.2): the detector's classes of hidden image
    rows.

    Args:
        num_classes: of the detector, its background included where it has a number (Visual Genome: 1,601; LXMERT's
            1,600, and 400 attributes).
        target: the predicted field: the `classes` of the regions' objects, or their `attributes`.
        weighted: each row counts by the detector's confidence (LXMERT).
        norm: a LayerNorm in the head; VL-BERT has none.
        of: an objective of the task that hides rows before this one: the same rows are classified then, from its head's
        states
            (LXMERT), and `rate`, `zero` and `random` have no effect.
        rate, zero, random, matched_only, stream: which rows are hidden, and how (`MaskedRegions`).
    """

    reads = ("regions",)

    def __init__(
        self,
        num_classes: Size,
        target: Literal["classes", "attributes"] = "classes",
        weighted: bool = False,
        norm: bool = True,
        of: Word | None = None,
        rate: SomeShare = 0.15,
        zero: Share = 1.0,
        random: Share = 0.0,
        matched_only: bool = True,
        stream: Word = "image",
    ) -> None:
        super().__init__(rate, zero, random, matched_only, stream)
        self.num_classes, self.target, self.weighted, self.norm = num_classes, target, weighted, norm
        self.of = of
        self.after = () if of is None else (of,)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        if self.of is None:
            return super().corrupt(sequences, draws)
        for sequence in sequences:
            rows = sequence.targets.get(self.of, {}).get("rows")
            if isinstance(rows, Rows):
                sequence.targets[self.name] = {"rows": rows.copy(), **self.wanted(sequence, rows.index)}
        return {}

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        labels = stored(sequence, self.stream, self.target, self.name)[rows].astype(np.int64)
        if ((labels < 0) | (labels >= self.num_classes)).any():
            raise WorkbenchError(
                f"objective {self.name!r}: sequence {sequence.key!r} has the {self.target} {labels.min()} to "
                f"{labels.max()}; allowed: 0 to {self.num_classes - 1}. Set num_classes to those of the detector"
            )
        if not self.weighted:
            return {"labels": labels}
        confidence = stored(sequence, self.stream, CONFIDENCES[self.target], self.name)[rows]
        return {"labels": labels, "weights": confidence.astype(np.float32)}

    def head(self, network: Network) -> Head:
        size = network.sizes[self.stream]
        if self.of is None:
            return MrcHead(size, self.num_classes, self.stream, self.norm)
        return SharedMrcHead(size, self.num_classes, self.of)


def classified(logits: Tensor, targets: dict[str, Tensor]) -> LossOutput:
    """The loss of logits [rows, classes], and the number of right ones."""
    logits, labels = logits.float(), targets["labels"]
    losses = F.cross_entropy(logits, labels, reduction="none")
    with torch.no_grad():
        right = (logits.argmax(-1) == labels).sum()
    loss = (losses * targets["weights"]).sum() if "weights" in targets else losses.sum()
    return LossOutput(loss, {"accuracy": (right, float(len(labels)))})


class MrcHead(RegionHead):
    """Dense, gelu, LayerNorm, linear to the classes."""

    def __init__(self, hidden_size: int, num_classes: int, stream: str = "image", norm: bool = True) -> None:
        super().__init__(hidden_size, stream, norm)
        self.output = nn.Linear(hidden_size, num_classes)

    def logits(self, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> [rows, classes]."""
        logits: Tensor = self.output(self.transform(rows))
        return logits

    def forward(self, inputs: HeadInputs) -> LossOutput:
        states = inputs.states  # without targets too: other ranks run the network
        if not inputs.targets:
            return LossOutput(self.output.bias.sum() * 0, {})
        return classified(self.logits(states[self.stream][inputs.targets["rows"]]), inputs.targets)


class SharedMrcHead(Head):
    """Linear to the classes, from another head's states of the same rows (`hidden`)."""

    def __init__(self, hidden_size: int, num_classes: int, of: str) -> None:
        super().__init__()
        self.of = of
        self.output = nn.Linear(hidden_size, num_classes)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        if not inputs.targets:
            return LossOutput(self.output.bias.sum() * 0, {})
        return classified(self.output(inputs.outputs(self.of)["hidden"]), inputs.targets)
