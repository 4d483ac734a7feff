"""Correlations, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.metrics.correlations import number_scores


def plain(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal ones share the mean of theirs."""
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_the_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, gold = rng.normal(size=20), rng.integers(0, 6, 20).astype(float)
    found = number_scores(predicted, gold)
    assert found["pearson"] == pytest.approx(plain(predicted, gold))
    assert found["spearman"] == pytest.approx(plain(ranks(predicted), ranks(gold)))
    assert found["squared_error"] == pytest.approx(((predicted - gold) ** 2).mean())


@pytest.mark.parametrize("count", [1, 3])
def test_what_does_not_vary_correlates_with_nothing(count: int) -> None:
    found = number_scores(np.full(count, 2.0), np.arange(count, dtype=float))
    assert (found["pearson"], found["spearman"]) == (0, 0)
