"""Scores of single-label classification."""

from __future__ import annotations

import numpy as np


def class_scores(predicted: np.ndarray, gold: np.ndarray, classes: int) -> dict[str, float]:
    """Accuracy, macro F1 and Matthews' correlation coefficient of predicted against gold classes, both [examples].

    `macro_f1` is the mean over the classes that are predicted or gold somewhere, 0 where one is never right; `mcc`
    that of several classes (Gorodkin, Computational Biology and Chemistry 2004), 0 where all predictions are equal.
    """
    table = np.zeros((classes, classes))
    np.add.at(table, (gold, predicted), 1)
    right, found, wanted, n = table.diagonal(), table.sum(0), table.sum(1), len(gold)
    there = found + wanted > 0
    spread = np.sqrt((n**2 - (found**2).sum()) * (n**2 - (wanted**2).sum()))
    return {
        "accuracy": float(right.sum() / n),
        "macro_f1": float((2 * right[there] / (found + wanted)[there]).mean()),
        "mcc": float((right.sum() * n - found @ wanted) / spread) if spread else 0.0,
    }
