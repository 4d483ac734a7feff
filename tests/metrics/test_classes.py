"""Scores of classes, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.metrics.classes import class_scores


def plain(predicted: np.ndarray, gold: np.ndarray, classes: int) -> dict[str, float]:
    """By the table of confusions."""
    table = np.zeros((classes, classes))
    np.add.at(table, (gold, predicted), 1)
    right, found, wanted, n = table.diagonal(), table.sum(0), table.sum(1), len(gold)
    there = found + wanted > 0
    spread = np.sqrt((n**2 - (found**2).sum()) * (n**2 - (wanted**2).sum()))
    return {
        "accuracy": right.sum() / n,
        "macro_f1": (2 * right[there] / (found + wanted)[there]).mean(),
        "micro_f1": right.sum() / n,
        "mcc": (right.sum() * n - found @ wanted) / spread if spread else 0.0,
    }


@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_the_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 5))
    gold, predicted = rng.integers(0, classes, (2, 30))
    assert class_scores(predicted, gold) == pytest.approx(plain(predicted, gold, classes))


def test_predictions_that_are_all_equal_correlate_with_nothing() -> None:
    found = class_scores(np.ones(4, int), np.array([1, 0, 1, 1]))
    assert found == pytest.approx({"accuracy": 0.75, "macro_f1": 3 / 7, "micro_f1": 0.75, "mcc": 0.0})
