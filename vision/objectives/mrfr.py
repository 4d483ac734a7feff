"""Masked region feature regression: predict the features of hidden image rows (LXMERT, UNITER; arXiv:1909.11740 3.2).

Regions: the target is the row's own features. Patches: its pixels as the embedding normalises them, and then each patch
by itself as in MAE (arXiv:2111.06377). The loss of a row is the mean over the target's numbers, so that the mean over
rows is UNITER's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.sequences.pairs import MATCHED
from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.options.bounds import Share, SomeShare, Word
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.tasks.forward import Seen
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective

if TYPE_CHECKING:
    from workbench.models.network import Network


class Mrfr(Objective):
    """Masked region (or patch) feature regression.

    Args:
        rate: share of the image rows to predict, at least one an image.
        zero: share of these whose features become zero (and `masked`); the rest of them ...
        random: ... or become those of a row of another image of the micro-batch; what is left over is kept.
            UNITER: 1, 0. LXMERT: 0.8, 0.1. ViLBERT: 0.9, 0.
        loss: `mse` (UNITER) or `smooth_l1` (LXMERT).
        tied: the output matrix is the transpose of the embedding's projection (UNITER); else a matrix of its own.
        matched_only: leave pairs alone that itm exchanged. LXMERT's code predicts their regions too.
        stream: of the image rows.
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
        if zero + random > 1 + 1e-9:
            raise WorkbenchError(f"mrfr: zero = {zero}, random = {random}; allowed: shares of at most 1 together")
        self.rate, self.zero, self.random = rate, zero, random
        self.loss = loss
        self.tied = tied
        self.matched_only = matched_only
        self.stream = stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        chosen = [s for s in sequences if s.length(self.stream) and not self._skipped(s)]
        clean = {id(s): s.streams[self.stream][feature_field(s.streams[self.stream])].copy() for s in chosen}
        lent = {id(s): clean[id(s)][~special_rows(s.streams[self.stream])] for s in chosen}
        for sequence in chosen:
            rng = draws.of(sequence.draw)
            fields = sequence.streams[self.stream]
            rows = self._select(fields, rng)
            if not len(rows):
                continue
            own = clean[id(sequence)]
            others = [features for key, features in lent.items() if key != id(sequence) and len(features)]
            self._hide(fields, rows, others, rng)
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "features": own[rows]}
        return {}

    def _skipped(self, sequence: Sequence) -> bool:
        return self.matched_only and sequence.labels.get(MATCHED) == 0

    def _select(self, fields: Fields, rng: np.random.Generator) -> np.ndarray:
        """Each free row with probability `rate`; one of them where none was drawn."""
        n = len(fields["boxes"])
        fields.setdefault("taken", np.zeros(n, np.bool_))
        free = np.flatnonzero(~fields["taken"] & ~special_rows(fields))
        rows = free[rng.random(len(free)) < self.rate]
        if not len(rows) and len(free):
            rows = free[[rng.integers(len(free))]]
        return rows

    def _hide(self, fields: Fields, rows: np.ndarray, others: list[np.ndarray], rng: np.random.Generator) -> None:
        features = fields[feature_field(fields)]
        fields["taken"][rows] = True
        fields.setdefault("masked", np.zeros(len(features), np.bool_))
        for row, lot in zip(rows, rng.random(len(rows)), strict=True):
            if lot < self.zero or (lot < self.zero + self.random and not others):
                features[row] = 0
                fields["masked"][row] = True
            elif lot < self.zero + self.random:
                donor = others[int(rng.integers(len(others)))]
                features[row] = donor[int(rng.integers(len(donor)))]

    def count(self, batch: Batch) -> float:
        """The number of rows to predict."""
        return float(len(batch.targets.get(self.name, {}).get("rows", ())))

    def head(self, network: Network) -> Head:
        hidden_size = network.sizes[self.stream]
        return MrfrHead(
            input_projection(network, self.stream).in_features, hidden_size, self.loss, self.tied, self.stream
        )


class MrfrHead(Head):
    """Dense, gelu, LayerNorm, then the target's width: by the transposed input projection, or a matrix of its own."""

    def __init__(self, feature_size: int, hidden_size: int, loss: str, tied: bool, stream: str = "image") -> None:
        super().__init__()
        self.stream = stream
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(feature_size))
        self.output = None if tied else nn.Linear(hidden_size, feature_size, bias=False)
        self.function = F.mse_loss if loss == "mse" else F.smooth_l1_loss

    def predict(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> features [rows, feature_size]."""
        hidden = self.norm(F.gelu(self.dense(rows)))
        if self.output is not None:
            return self.output(hidden) + self.bias
        return F.linear(hidden, input_projection(network, self.stream).weight.T, self.bias)

    def forward(self, seen: Seen) -> LossOutput:
        targets = seen.targets
        if not targets:
            return LossOutput(self.bias.sum() * 0, {})
        predicted = self.predict(seen.network, seen.states[self.stream][targets["rows"]]).float()
        goal = goal_of(seen.network, self.stream, targets["features"])
        losses = self.function(predicted, goal, reduction="none").mean(-1)
        with torch.no_grad():
            centred = (goal - goal.mean(0)).square().mean(-1)
        return LossOutput(losses.sum(), {"target_variance": (centred.sum(), float(len(goal)))})


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


def feature_field(fields: Fields) -> str:
    """The field of an image stream that mrfr can hide and predict.

    Raises:
        WorkbenchError: the features are only made inside the model.
    """
    for name in ("features", "patches"):
        if name in fields:
            return name
    raise WorkbenchError(
        f"mrfr needs stored features or patches; the image stream has {', '.join(sorted(fields))}. Extract grid "
        "features with `workbench prepare regions` and use vision.regions, or use vision.patches"
    )


def special_rows(fields: Fields) -> np.ndarray:
    """Which rows are none of the image (a class token): [rows], bool."""
    return fields.get("special", np.zeros(len(fields["boxes"]), np.bool_))


def goal_of(network: Network, stream: str, features: Tensor) -> Tensor:
    """What is to be predicted of hidden rows: their features, or their patches, each with mean 0 and deviation 1.

    Args:
        features: [rows, feature_size]; of patches the bytes.

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
