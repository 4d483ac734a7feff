"""Scores of classes, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.metrics.classes import by_class, class_counts, class_scores, never_predicted


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


@pytest.mark.parametrize("seed", range(3))
def test_each_class_by_itself_equals_scikit_learn(seed: int) -> None:
    """Of one class an example, and of several."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 4, (2, 40))
    several = rng.random((2, 40, 4)) < 0.4
    for predicted, gold in (one, several):
        found = by_class(class_counts(predicted, gold, ["a", "b", "c", "d"]))
        assert sorted(found, key=lambda name: (-found[name]["gold"], name)) == list(found)
        shares = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
        for i, name in enumerate("abcd"):
            wanted = dict(zip(("precision", "recall", "f1", "gold"), (column[i] for column in shares), strict=True))
            assert {key: found[name][key] for key in wanted} == pytest.approx(wanted)


def test_classes_that_are_nowhere_or_never_predicted() -> None:
    found = by_class({"a": (1, 1, 2), "b": (0, 0, 3), "c": (0, 0, 0), "d": (0, 2, 0)})
    assert list(found) == ["b", "a", "d"]
    assert found["b"] == {"precision": 0, "recall": 0, "f1": 0, "gold": 3, "predicted": 0}
    assert never_predicted(found) == 1
