"""Intervals and paired tests: by exact cases, by scipy, and by how often they err where the truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from workbench.metrics.ranks import rank_tallies
from workbench.metrics.resampling import compared_numbers, intervals, units_of, wilson
from workbench.metrics.tallies import Tally


def alone(items: int) -> np.ndarray:
    return np.arange(items)


def test_wilson_is_that_of_scipy() -> None:
    for right, total in ((0, 7), (3, 7), (50, 80), (9, 9)):
        theirs = stats.binomtest(right, total).proportion_ci(method="wilson")
        assert wilson(right, total)[:2] == pytest.approx((theirs.low, theirs.high))
    assert wilson(3, 7, 100.0)[:2] == pytest.approx([100 * side for side in wilson(3, 7)[:2]])


def test_the_bootstraps_interval_is_that_of_scipy() -> None:
    x = np.random.default_rng(0).gamma(2.0, size=60)
    found = intervals({"x": Tally.mean(x)}, alone(60), count=20_000)["x"]
    theirs = stats.bootstrap((x,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    assert found.by == "bootstrap"
    assert found[:2] == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_a_share_of_independent_items_has_wilsons_interval_and_one_of_dependent_items_the_bootstraps() -> None:
    right = Tally.share([1, 0, 1, 1, 0, 1])
    assert intervals({"x": right}, alone(6))["x"].by == "Wilson"
    assert intervals({"x": right}, np.array([0, 0, 1, 1, 2, 2]))["x"].by == "bootstrap"
    assert intervals({"x": right}, np.zeros(6, int)) == {}  # of one unit nothing can be said


def test_whoever_makes_a_tally_says_whether_it_is_a_share() -> None:
    """Values do not: all ranks may be 1, and all scores 100."""
    ones = np.ones(40)
    for value in (1, 100):
        assert intervals({"mean_rank": Tally.mean(value * ones)}, alone(40))["mean_rank"] == (value, value, "bootstrap")
    found = intervals({"accuracy": Tally.share(0 * ones), "score": Tally.of("percentage", 0 * ones, ones)}, alone(40))
    assert found["accuracy"] == wilson(0, 40)
    assert found["score"] == wilson(0, 40, 100.0)
    ranks = intervals(rank_tallies([1.0] * 40), alone(40))
    assert {name: of.by for name, of in ranks.items()} == {
        **dict.fromkeys(("accuracy", "hits@1", "hits@3", "hits@10"), "Wilson"),
        **dict.fromkeys(("mrr", "mean_rank", "median_rank"), "bootstrap"),
    }
    words = Tally.of("share", [3, 1, 0], [3, 2, 1])  # a text of several words is no single item
    assert intervals({"accuracy": words}, alone(3))["accuracy"].by == "bootstrap"


def test_a_difference_is_that_of_every_draw_of_three_items() -> None:
    """27 draws of three items, counted out: the p value, and the interval's ends."""
    one, other = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.5, 1.0])
    found = compared_numbers([Tally.mean(one)], [Tally.mean(other)], alone(3), count=40_000)
    every = [np.mean((other - one)[list(draw)]) for draw in product(range(3), repeat=3)]
    observed = np.mean(other - one)
    assert found.difference == pytest.approx(0.5)
    assert found.p == pytest.approx(np.mean(np.abs(np.array(every) - observed) >= observed - 1e-9), abs=0.01)
    assert (found.low, found.high) == pytest.approx(np.quantile(every, (0.025, 0.975), method="inverted_cdf"), abs=1e-9)


def test_the_same_predictions_do_not_differ() -> None:
    tally = Tally.mean(np.random.default_rng(0).random(50))
    assert compared_numbers([tally], [tally], alone(50), count=500)[2:] == (0.0, 0.0, 0.0, 1.0)


def test_of_runs_that_do_not_differ_p_is_uniform_and_intervals_hold_zero() -> None:
    """A control: two sides whose truth is the same, 300 times. A test that claims too much fails here."""
    rng, found = np.random.default_rng(5), []
    for _ in range(300):
        hard = rng.random(80)  # items are hard for both sides, which is why they are paired
        sides = [Tally.mean((rng.random(80) < hard).astype(float)) for _ in range(2)]
        found.append(compared_numbers([sides[0]], [sides[1]], alone(80), count=400, seed=int(rng.integers(1 << 30))))
    p = np.array([each.p for each in found])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 300) + 0.02)
    assert np.mean([each.low <= 0 <= each.high for each in found]) > 0.9


def test_a_real_difference_is_found_where_items_are_paired() -> None:
    hard = np.random.default_rng(0).normal(size=100)
    one, other = Tally.mean(hard), Tally.mean(hard + 0.1 + 0.1 * np.random.default_rng(1).normal(size=100))
    found = compared_numbers([one], [other], alone(100), count=2_000)
    assert found.p < 0.01 < 0.05 < found.low + 0.05
    assert found.low < found.difference < found.high


def test_seeds_widen_the_interval_by_how_much_they_differ() -> None:
    x = np.random.default_rng(0).normal(size=60)
    still = [Tally.mean(x)] * 3
    moving = [Tally.mean(x + shift) for shift in (0.0, 1.0, 2.0)]
    same = compared_numbers(still, still, alone(60), count=1_000)
    assert (same.low, same.high) == (0, 0)
    found = compared_numbers(still, moving, alone(60), count=1_000)
    assert found.difference == pytest.approx(1.0)
    assert found.low < 0.5 < 1.5 < found.high
    apart = compared_numbers(
        still, [Tally.mean(x), Tally.mean(x)], alone(60), count=1_000
    )  # so many seeds cannot be paired
    assert apart.difference == pytest.approx(0)


def test_units_go_by_their_key() -> None:
    assert units_of(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]
