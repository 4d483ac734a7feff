"""A linear probe: how much of the types do the entity vectors alone tell, without any text?

Multi-label logistic regression from the vector of the mention's entity to the types. What a model that is given these
vectors reaches above a text model says little unless it is held against this.

    L = mean over cells of the binary cross-entropy of sigmoid(W x + b), plus l2 |W|^2 / 2

x is standardised by the training set. l2 is chosen among `PENALTIES` by the micro F1 on a fifth of the training
entities, which are held out whole; then W is fitted to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kg.metrics.typing import Rule, predicted_types, typing_scores
from workbench.keyed import digest

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STEPS = 100


@dataclass(frozen=True)
class Typed:
    """Mentions of one set: the entity of each (empty where it is not linked), its vector and its gold types.

    `vectors` [mentions, size] float32, zeros where there is none; `gold` [mentions, types] bool.
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
        """[mentions, size] -> [mentions, types]."""
        x = (torch.from_numpy(vectors).double() - self.mean) / self.scale
        found: np.ndarray = (x @ self.weight + self.bias).numpy()
        return found


def fit(vectors: np.ndarray, gold: np.ndarray, l2: float) -> Probe:
    """The minimum of the loss above (L-BFGS in double precision; no random numbers)."""
    x, y = torch.from_numpy(vectors).double(), torch.from_numpy(gold).double()
    mean, scale = x.mean(0), x.std(0, correction=0).clamp_min(1e-9)
    x = (x - mean) / scale
    weight = torch.zeros(x.shape[1], y.shape[1], dtype=torch.double, requires_grad=True)
    bias = torch.zeros(y.shape[1], dtype=torch.double, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(x @ weight + bias, y) + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return Probe(mean, scale, weight.detach(), bias.detach(), l2)


def fit_best(train: Typed, rule: Rule = "positive") -> Probe:
    """A probe on all mentions, with the penalty that did best on a fifth of the entities."""
    held_out = np.array([digest("probe", entity) % 5 == 0 for entity in train.entities])
    if held_out.all() or not held_out.any():
        return fit(train.vectors, train.gold, PENALTIES[len(PENALTIES) // 2])

    def f1(l2: float) -> float:
        probe = fit(train.vectors[~held_out], train.gold[~held_out], l2)
        predicted = predicted_types(probe.logits(train.vectors[held_out]), rule)
        return typing_scores(predicted, train.gold[held_out]).loose_micro.f1

    return fit(train.vectors, train.gold, max(PENALTIES, key=f1))
