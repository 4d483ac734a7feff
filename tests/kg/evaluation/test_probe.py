"""The linear probe: finds the optimum of its loss, and what it is given decides what it reaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.evaluation.probe import PENALTIES, ProbeExamples, fit, fit_best
from kg.metrics.typing_scores import predicted_types, typing_scores


def made(seed: int, reported: bool = True, count: int = 120) -> ProbeExamples:
    """Two types that a vector's first two numbers determine (or not)."""
    rng = np.random.default_rng(seed)
    gold = rng.random((count, 2)) < 0.5
    vectors = rng.normal(size=(count, 6)).astype(np.float32)
    if reported:
        vectors[:, :2] += 4 * gold
    return ProbeExamples([f"e{i}" for i in range(count)], vectors, gold)


def micro(logits: np.ndarray, gold: np.ndarray) -> float:
    return typing_scores(predicted_types(logits), gold).loose_micro.f1


def f1(train: ProbeExamples, test: ProbeExamples) -> float:
    return micro(fit_best(train, micro).logits(test.vectors), test.gold)


def test_reads_what_the_vectors_say() -> None:
    assert f1(made(0), made(1)) > 0.9
    assert f1(made(0, reported=False), made(1, reported=False)) < 0.7


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


def test_one_class_of_several_is_the_minimum() -> None:
    rng = np.random.default_rng(4)
    classes = rng.integers(0, 3, 60)
    gold = classes[:, None] == np.arange(3)
    vectors = rng.normal(size=(60, 4)).astype(np.float32) + np.pad(gold, ((0, 0), (0, 1))).astype(np.float32)
    probe = fit(vectors, gold, 1e-2, "softmax")
    weight, bias = (t.clone().requires_grad_() for t in (probe.weight, probe.bias))
    x = (torch.from_numpy(vectors).double() - probe.mean) / probe.scale
    p = torch.softmax(x @ weight + bias, -1)
    loss = -p[torch.arange(60), torch.from_numpy(classes)].log().mean() + 1e-2 / 2 * (weight**2).sum()
    loss.backward()
    assert weight.grad.abs().max() < 1e-4
    assert bias.grad.abs().max() < 1e-4


def test_entities_without_a_vector_and_constant_numbers() -> None:
    data = made(3)
    vectors = data.vectors.copy()
    vectors[:, 3] = 0
    vectors[::5] = 0
    probe = fit_best(ProbeExamples(data.entities, vectors, data.gold), micro)
    assert probe.l2 in PENALTIES
    assert np.isfinite(probe.logits(vectors)).all()


def test_one_entity_alone() -> None:
    data = ProbeExamples(["e", "e"], np.ones((2, 3), np.float32), np.array([[True], [False]]))
    assert np.isfinite(fit_best(data, micro).logits(data.vectors)).all()
