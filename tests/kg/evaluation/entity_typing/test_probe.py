"""The linear probe: finds the optimum of its loss, and what it is given decides what it reaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.evaluation.entity_typing.probe import PENALTIES, Typed, fit, fit_best
from kg.metrics.typing import predicted_types, typing_scores


def made(seed: int, told: bool = True, count: int = 120) -> Typed:
    """Two types that a vector's first two numbers tell (or not)."""
    rng = np.random.default_rng(seed)
    gold = rng.random((count, 2)) < 0.5
    vectors = rng.normal(size=(count, 6)).astype(np.float32)
    if told:
        vectors[:, :2] += 4 * gold
    return Typed([f"e{i}" for i in range(count)], vectors, gold)


def f1(train: Typed, test: Typed) -> float:
    logits = fit_best(train).logits(test.vectors)
    return typing_scores(predicted_types(logits), test.gold).loose_micro.f1


def test_reads_what_the_vectors_tell() -> None:
    assert f1(made(0), made(1)) > 0.9
    assert f1(made(0, told=False), made(1, told=False)) < 0.7


@pytest.mark.parametrize("l2", [1e-3, 1e-1])
def test_is_the_minimum(l2: float) -> None:
    data = made(2)
    probe = fit(data.vectors, data.gold, l2)
    weight, bias = (t.clone().requires_grad_() for t in (probe.weight, probe.bias))
    x = (torch.from_numpy(data.vectors).double() - probe.mean) / probe.scale
    p = torch.sigmoid(x @ weight + bias)
    y = torch.from_numpy(data.gold).double()
    loss = -(y * p.log() + (1 - y) * (1 - p).log()).mean() + l2 / 2 * (weight**2).sum()
    loss.backward()
    assert weight.grad.abs().max() < 1e-4
    assert bias.grad.abs().max() < 1e-4


def test_entities_without_a_vector_and_constant_numbers() -> None:
    data = made(3)
    vectors = data.vectors.copy()
    vectors[:, 3] = 0
    vectors[::5] = 0
    probe = fit_best(Typed(data.entities, vectors, data.gold))
    assert probe.l2 in PENALTIES
    assert np.isfinite(probe.logits(vectors)).all()


def test_one_entity_alone() -> None:
    data = Typed(["e", "e"], np.ones((2, 3), np.float32), np.array([[True], [False]]))
    assert np.isfinite(fit_best(data).logits(data.vectors)).all()
