"""Scores of single-label classification, as scikit-learn computes them, and of each class by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from workbench.core.packages import library
from workbench.metrics.tallies import Tally


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


def class_tallies(predicted: np.ndarray, gold: np.ndarray) -> dict[str, Tally]:
    """The tallies of the numbers of `class_scores`, by example."""
    accuracy = Tally.share(predicted == gold)
    macro, mcc = Tally.of("macro_f1", gold, predicted), Tally.of("mcc", gold, predicted)
    return {"accuracy": accuracy, "macro_f1": macro, "micro_f1": accuracy, "mcc": mcc}


def class_counts(predicted: np.ndarray, gold: np.ndarray, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """By class the numbers of examples for which it is rightly predicted, predicted, and gold.

    Args:
        predicted, gold: rows of `names` [examples], or bool [examples, names] where an example has several.
    """
    if predicted.ndim == 1:
        rows = np.arange(len(names))
        predicted, gold = predicted[:, None] == rows, gold[:, None] == rows
    counts = ((predicted & gold).sum(0), predicted.sum(0), gold.sum(0))
    return dict(zip(names, zip(*(each.tolist() for each in counts), strict=True), strict=True))


def by_class(counts: Mapping[str, tuple[int, int, int]]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each class by itself, 0 where there is nothing to divide by, and the numbers of
    examples that have it as `gold` and as `predicted`; the most frequent first, without those that are neither."""
    found = sorted((name for name in counts if any(counts[name])), key=lambda name: (-counts[name][2], name))
    return {name: _scores(*counts[name]) for name in found}


def never_predicted(classes: Mapping[str, Mapping[str, float]]) -> int:
    """The number of classes of `by_class` that are gold somewhere and predicted nowhere."""
    return sum(bool(of["gold"]) and not of["predicted"] for of in classes.values())


def unknown_classes(gold: np.ndarray, names: Sequence[str], known: int) -> dict[str, int]:
    """By class the numbers of examples of those that a model cannot predict, the most frequent first.

    Args:
        gold: rows of `names` [examples]; the first `known` of these are the model's.
    """
    return {names[row]: count for row, count in Counter(gold[gold >= known].tolist()).most_common()}


def _scores(right: int, predicted: int, gold: int) -> dict[str, float]:
    shares = {"precision": right / predicted if predicted else 0.0, "recall": right / gold if gold else 0.0}
    return {**shares, "f1": 2 * right / (predicted + gold), "gold": gold, "predicted": predicted}
