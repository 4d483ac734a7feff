"""Thresholds against trying all of them."""

from __future__ import annotations

import numpy as np
import pytest

from kg.evaluation.tasks.triple_classification import Thresholds, best_threshold


@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_decides_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, true = rng.integers(6, size=20).astype(np.float32), rng.random(20) < 0.5
    found = best_threshold(scores, true)
    tried = [((scores >= t) == true).mean() for t in np.arange(-0.5, 7)]
    assert ((scores >= found) == true).mean() == max(tried)


def test_a_relation_without_known_triples_has_the_threshold_of_all() -> None:
    scores = np.array([0.0, 1.0, 4.0, 5.0])
    true = np.array([False, True, False, True])
    found = Thresholds.fitted(scores, np.array([0, 0, 1, 1]), true)
    assert found.of_relation == {0: 0.5, 1: 4.5}
    assert found.decide(np.array([0.6, 4.4, 4.6]), np.array([0, 1, 7])).tolist() == [True, False, True]
    assert found.of_all == 0.5


def test_all_true_and_all_false() -> None:
    assert best_threshold(np.array([1.0, 2.0]), np.array([True, True])) == -np.inf
    assert best_threshold(np.array([1.0, 2.0]), np.array([False, False])) == np.inf
