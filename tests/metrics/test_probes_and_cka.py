"""The linear probe compared with scikit-learn's, and CKA with Gram matrices and a bootstrap by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from workbench.metrics.cka import cka_table, cka_tally
from workbench.metrics.probes import LinearProbe
from workbench.metrics.resampling import intervals


def test_a_probe_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(2, 3, (200, 10)), rng.choice(["a", "b", "c"], 200)
    mine = LinearProbe.trained(x, labels, 0.05)
    scale = StandardScaler().fit(x)
    theirs = LogisticRegression(C=1 / (0.05 * 200), max_iter=5000, tol=1e-10).fit(scale.transform(x), labels)
    assert np.abs(mine.weights.T - theirs.coef_).max() < 1e-3
    new = rng.normal(2, 3, (50, 10))
    assert (mine.predict(new) == theirs.predict(scale.transform(new))).mean() > 0.97


def by_grams(x: np.ndarray, y: np.ndarray) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of centred Gram matrices (Kornblith et al., equation 2)."""
    centre = np.eye(len(x)) - 1 / len(x)
    k, ell = (centre @ (side @ side.T) @ centre for side in (x, y))
    return float(np.trace(k @ ell) / np.sqrt(np.trace(k @ k) * np.trace(ell @ ell)))


def test_cka_is_that_of_gram_matrices() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(1, 1, (60, 8)), rng.normal(0, 1, (60, 5))
    y = x[:, :5] * 2 + noise
    assert cka_tally(x, y).whole == pytest.approx(by_grams(x, y))
    assert cka_table(np.stack([x, x**2]), y[None])[1, 0] == pytest.approx(by_grams(x**2, y))
    turned = x @ np.linalg.qr(rng.normal(size=(8, 8)))[0] * 3 + 7
    assert cka_tally(x, turned).whole == pytest.approx(1)
    assert cka_tally(x, y[rng.permutation(60)]).whole < cka_tally(x, y).whole / 2


def test_the_interval_of_cka_is_that_of_drawing_the_items_anew() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (100, 6))
    y = x + rng.normal(0, 1, (100, 6))
    draws = [by_grams(x[of], y[of]) for of in (rng.integers(0, 100, 100) for _ in range(200))]
    low, high, _ = intervals({"cka": cka_tally(x, y)}, np.arange(100))["cka"]
    assert high - low == pytest.approx(2 * 1.96 * np.std(draws), rel=0.25)
