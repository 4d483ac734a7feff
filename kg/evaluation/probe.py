"""A linear probe: the accuracy of predicting labels from the entity vectors alone, without any text.

It is a logistic regression from the vectors of an example's entities to its classes. The gain of a model with these
vectors over a text model means little unless it is compared with the probe. If an example may have several classes
(`binary`), or has one (`softmax`),

    L = mean over cells of the binary cross-entropy of sigmoid(W x + b), plus l2 |W|^2 / 2
    L = mean over examples of the cross-entropy of softmax(W x + b), plus l2 |W|^2 / 2

x is standardised by the training set. l2 is chosen among `PENALTIES` by a score on a fifth of the training entities,
which are held out whole; then W is fitted to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.core.keyed import digest

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STEPS = 100
Loss = Literal["binary", "softmax"]
Score = Callable[[np.ndarray, np.ndarray], float]
"""A score of logits against gold classes, both [examples, classes]. Higher is better."""


@dataclass(frozen=True)
class ProbeExamples:
    """Examples of one set: the entity that each is about (empty where it is not linked), vectors and gold classes.

    `vectors` [examples, size] float32, zeros where there is none; `gold` [examples, classes] bool.
    """

    entities: Sequence[str]
    vectors: np.ndarray
    gold: np.ndarray


@dataclass(frozen=True)
class Probe:
    """A fitted probe."""

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    l2: float

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """[examples, size] -> [examples, classes]."""
        x = (torch.from_numpy(vectors).double() - self.mean) / self.scale
        found: np.ndarray = (x @ self.weight + self.bias).numpy()
        return found


def fit(vectors: np.ndarray, gold: np.ndarray, l2: float, loss: Loss = "binary") -> Probe:
    """The minimum of the loss (L-BFGS in double precision; no random numbers)."""
    of = F.binary_cross_entropy_with_logits if loss == "binary" else F.cross_entropy
    x, y = torch.from_numpy(vectors).double(), torch.from_numpy(gold).double()
    mean, scale = x.mean(0), x.std(0, correction=0).clamp_min(1e-9)
    x = (x - mean) / scale
    weight = torch.zeros(x.shape[1], y.shape[1], dtype=torch.double, requires_grad=True)
    bias = torch.zeros(y.shape[1], dtype=torch.double, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        total: Tensor = of(x @ weight + bias, y) + l2 / 2 * weight.square().sum()
        total.backward()
        return total

    optimiser.step(closure)
    return Probe(mean, scale, weight.detach(), bias.detach(), l2)


def fit_best(train: ProbeExamples, score: Score, loss: Loss = "binary") -> Probe:
    """A probe on all examples, with the penalty whose score was best on a fifth of the entities."""
    held_out = np.array([digest("probe", entity) % 5 == 0 for entity in train.entities])
    if held_out.all() or not held_out.any():
        return fit(train.vectors, train.gold, PENALTIES[len(PENALTIES) // 2], loss)

    def of(l2: float) -> float:
        probe = fit(train.vectors[~held_out], train.gold[~held_out], l2, loss)
        return score(probe.logits(train.vectors[held_out]), train.gold[held_out])

    return fit(train.vectors, train.gold, max(PENALTIES, key=of), loss)
