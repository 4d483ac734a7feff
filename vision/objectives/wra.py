"""Word-region alignment by optimal transport (UNITER, arXiv:1909.11740, 3.2; IPOT: Xie et al., arXiv:1802.04307).

    C_ij = 1 - cos(w_i, v_j)                        words w_1..m and regions v_1..n, states of the last layer
    D(w, v) = sum_ij T_ij C_ij                      T: the plan that moves 1/m from each word to 1/n at each region
    L = sum over matched pairs of D - sum over exchanged pairs of D

T comes from `iterations` proximal steps of size `beta` from the plan of ones, and is a constant for the gradient:

    Q = exp(-C / beta) * T;   d_j = 1 / (n sum_i Q_ij s_i);   s_i = 1 / (m sum_j Q_ij d_j);   T_ij = s_i Q_ij d_j

The paper's text minimises the distance. The published code, which is implemented here, does so for matched pairs and
maximises it for exchanged ones, in the steps of matching, with the weight 0.1. The special tokens ([CLS], [SEP]) take
part there. Each pair is transported by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vision.sequences.matching import MATCHED
from vision.sequences.region_targets import special_rows
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Positive, Word
from workbench.models.permutation import padded_groups
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

LEAST_NORM = 1e-5
"""Shorter states are divided by this, as in the published code."""


class Wra(Objective):
    """Word-region alignment by optimal transport (UNITER, arXiv:1909.11740, section 3.2; IPOT, arXiv:1802.04307). The
    loss is the distance between a pair's words and regions, minus that of mismatched pairs.

    Args:
        beta: size of the proximal steps; a smaller one makes the plan sparser.
        iterations: their number.
        special: special tokens ([CLS], [SEP]) and the row of the whole image take part, too.
        exchanged: pairs that itm exchanged count with a minus; else they are left out, as in the paper's text.
        text, image: the two streams, of one width.
    """

    def __init__(
        self,
        beta: Positive = 0.5,
        iterations: Count = 50,
        special: bool = True,
        exchanged: bool = True,
        text: Word = "text",
        image: Word = "image",
    ) -> None:
        self.beta, self.iterations = beta, iterations
        self.special, self.exchanged = special, exchanged
        self.text, self.image = text, image

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            label = int(sequence.labels.get(MATCHED, 1))
            words, regions = self._rows(sequence, self.text), self._rows(sequence, self.image)
            if len(words) and len(regions) and (label == 1 or self.exchanged):
                sequence.targets[self.name] = {
                    "labels": np.asarray([label], np.int64),
                    "words": Rows(self.text, words),
                    "regions": Rows(self.image, regions),
                    "num_words": np.asarray([len(words)], np.int64),
                    "num_regions": np.asarray([len(regions)], np.int64),
                }
        return {}

    def _rows(self, sequence: Sequence, stream: str) -> np.ndarray:
        if not sequence.length(stream):
            return np.zeros(0, np.int64)
        fields = sequence.fields(stream)
        left_out = special_rows(fields) if stream == self.image else fields["special"]
        return np.arange(len(left_out)) if self.special else np.flatnonzero(~left_out)

    def head(self, network: Network) -> Head:
        sizes = {name: network.sizes[name] for name in (self.text, self.image)}
        if len({*sizes.values()}) > 1:
            raise WorkbenchError(
                f"objective {self.name!r}: words and regions need states of the same width; found {sizes}"
            )
        return WraHead(self.beta, self.iterations, self.text, self.image)


class WraHead(Head):
    """The distances of a micro-batch's pairs; it has no weights."""

    def __init__(self, beta: float, iterations: int, text: str = "text", image: str = "image") -> None:
        super().__init__()
        self.beta, self.iterations = beta, iterations
        self.text, self.image = text, image

    def forward(self, inputs: HeadInputs) -> LossOutput:
        targets, states = inputs.targets, inputs.states
        if not targets:
            return LossOutput(states[self.text].float().sum() * 0, {})
        lengths = {name: max(inputs.batch.streams[name].lengths) for name in (self.text, self.image)}
        with torch.autocast(
            states[self.text].device.type, enabled=False
        ):  # the released code's transport is in float32 too
            words = states[self.text][targets["words"]].float()
            regions = states[self.image][targets["regions"]].float()
            cost, there = pairwise_cost(
                *padded_groups(words, inputs.known("num_words"), lengths[self.text]),
                *padded_groups(regions, inputs.known("num_regions"), lengths[self.image]),
            )
            distances = (transport_plan(cost.detach(), there, self.beta, self.iterations) * cost).sum((1, 2))
        matched = targets["labels"] == 1
        of_matched = torch.where(matched, distances, 0).sum()
        of_others = torch.where(matched, 0, distances).sum()
        metrics: dict[str, tuple[Tensor | float, Tensor | float]] = {
            "matched": (of_matched.detach(), matched.sum()),
            "exchanged": (of_others.detach(), (~matched).sum()),
        }
        return LossOutput(of_matched - of_others, metrics)


def pairwise_cost(words: Tensor, word_there: Tensor, regions: Tensor, region_there: Tensor) -> tuple[Tensor, Tensor]:
    """The costs [pairs, m, n], one minus the cosines of words [pairs, m, size] and regions [pairs, n, size], and masks
    of the existing words [pairs, m] and regions [pairs, n]; the others are 0."""
    lengths = [F.normalize(rows, dim=-1, eps=LEAST_NORM) for rows in (words, regions)]
    there = word_there[:, :, None] & region_there[:, None, :]
    return (1 - lengths[0] @ lengths[1].transpose(1, 2)).masked_fill(~there, 0), there


@torch.no_grad()
def transport_plan(cost: Tensor, there: Tensor, beta: float, iterations: int) -> Tensor:
    """The plans [pairs, m, n] of IPOT, 0 for padding.

    Args:
        cost: [pairs, m, n].
        there: which of them count, a rectangle from the first corner of each pair.
    """
    word_there, region_there = there.any(2, keepdim=True), there.any(1, keepdim=True)
    words, regions = (each.to(cost.dtype) for each in (word_there, region_there))
    word_share, region_share = words / words.sum(1, keepdim=True), regions / regions.sum(2, keepdim=True)
    least = torch.finfo(cost.dtype).tiny  # padding has a share of 0, and a sum of 0 to divide by
    kernel = torch.exp(-cost / beta).masked_fill(~there, 0)
    plan, of_words = there.to(cost.dtype), word_share
    for _ in range(iterations):
        moved = kernel * plan
        of_regions = region_share / (moved * of_words).sum(1, keepdim=True).clamp_min(least)
        moved = moved * of_regions
        of_words = word_share / moved.sum(2, keepdim=True).clamp_min(least)
        plan = of_words * moved
    return plan
