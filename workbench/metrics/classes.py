"""Scores of single-label classification, as scikit-learn computes them."""

from __future__ import annotations

import numpy as np

from workbench.packages import library


def class_scores(predicted: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    """Accuracy, macro and micro F1 and Matthews' correlation coefficient of predicted against gold classes, both
    [examples].

    `macro_f1` is the mean over the classes that are predicted or gold somewhere, 0 where one is never right; `micro_f1`
    is the accuracy, as every example has one class; `mcc` that of several classes (Gorodkin, Computational Biology and
    Chemistry 2004), 0 where all predictions are equal.

    Raises:
        WorkbenchError: scikit-learn is not installed.
    """
    metrics = library("sklearn.metrics", "text", "the scores of classification")
    return {
        "accuracy": float(metrics.accuracy_score(gold, predicted)),
        "macro_f1": float(metrics.f1_score(gold, predicted, average="macro", zero_division=0)),
        "micro_f1": float(metrics.f1_score(gold, predicted, average="micro", zero_division=0)),
        "mcc": float(metrics.matthews_corrcoef(gold, predicted)),
    }
