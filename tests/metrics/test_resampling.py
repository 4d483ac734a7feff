"""Intervals and paired tests: by exact cases, by scipy, and by how often they err where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from workbench.metrics.ranks import rank_tallies
from workbench.metrics.resampling import OF_FEW, compared_numbers, intervals, units_of, wilson
from workbench.metrics.tallies import Tally


def alone(items: int) -> np.ndarray:
    return np.arange(items)


def test_wilson_is_that_of_scipy() -> None:
    for right, total in ((0, 7), (3, 7), (50, 80), (9, 9)):
        theirs = stats.binomtest(right, total).proportion_ci(method="wilson")
        assert wilson(right, total)[:2] == pytest.approx((theirs.low, theirs.high))
    assert wilson(3, 7, 100.0)[:2] == pytest.approx([100 * side for side in wilson(3, 7)[:2]])


def test_the_bootstraps_interval_is_nearly_scipys_bca() -> None:
    """It is corrected for bias too, and not for acceleration, but for the tails of t."""
    x = np.random.default_rng(0).gamma(2.0, size=60)
    found = intervals({"x": Tally.mean(x)}, alone(60), count=20_000)["x"]
    theirs = stats.bootstrap((x,), np.mean, method="BCa", n_resamples=20_000, rng=1).confidence_interval
    assert found.by == "bootstrap"
    assert found[:2] == pytest.approx((theirs.low, theirs.high), abs=0.04)


def classes_drawn(rng: np.random.Generator, items: int) -> list[np.ndarray]:
    """Gold and predicted classes of ten, one of which has half of the items."""
    gold = rng.choice(10, items, p=[0.5, *[0.5 / 9] * 9])
    return [gold, np.where(rng.random(items) < 0.6, gold, rng.integers(0, 10, items))]


def test_intervals_of_macro_f1_are_corrected_for_the_classes_that_draws_lose() -> None:
    """Percentiles alone lie .027 too low on average, and hold the truth in .83 of the trials."""
    rng, trials = np.random.default_rng(3), 150
    truth = Tally.of("macro_f1", *classes_drawn(rng, 300_000)).whole
    tallies = [Tally.of("macro_f1", *classes_drawn(rng, 50)) for _ in range(trials)]
    found = [intervals({"x": tally}, alone(50), count=400)["x"] for tally in tallies]
    middle = [(each.low + each.high) / 2 - tally.whole for each, tally in zip(found, tallies, strict=True)]
    assert np.mean(middle) > 0
    assert np.mean([each.low <= truth <= each.high for each in found]) > 0.83
    assert {each.by for each in found} == {OF_FEW}


@pytest.mark.parametrize(("rarest", "by"), [(30, "bootstrap"), (3, OF_FEW)])
def test_only_a_mean_of_classes_one_of_which_is_rare_is_called_uncertain(rarest: int, by: str) -> None:
    gold = np.repeat([0, 1, 2], [60, 50, rarest])
    predicted = np.where(np.arange(len(gold)) % 4 == 0, 0, gold)
    for kind in ("macro_f1", "macro_recall"):
        assert intervals({"x": Tally.of(kind, gold, predicted)}, alone(len(gold)), count=50)["x"].by == by


def test_a_share_of_independent_items_has_wilsons_interval_and_one_of_dependent_items_the_bootstraps() -> None:
    right = Tally.share([1, 0, 1, 1, 0, 1])
    assert intervals({"x": right}, alone(6))["x"].by == "Wilson"
    assert intervals({"x": right}, np.array([0, 0, 1, 1, 2, 2]))["x"].by == OF_FEW
    assert intervals({"x": right}, np.zeros(6, int)) == {}  # of one unit nothing can be said


def test_whoever_makes_a_tally_says_whether_it_is_a_share() -> None:
    """Values do not: all ranks may be 1, and all scores 100."""
    ones = np.ones(40)
    for value in (1, 100):
        assert intervals({"mean_rank": Tally.mean(value * ones)}, alone(40))["mean_rank"] == (value, value, OF_FEW)
    found = intervals({"accuracy": Tally.share(0 * ones), "score": Tally.of("percentage", 0 * ones, ones)}, alone(40))
    assert found["accuracy"] == wilson(0, 40)
    assert found["score"] == wilson(0, 40, 100.0)
    ranks = intervals(rank_tallies([1.0] * 40), alone(40))
    assert {name: of.by for name, of in ranks.items()} == {
        **dict.fromkeys(("accuracy", "hits@1", "hits@3", "hits@10"), "Wilson"),
        **dict.fromkeys(("mrr", "mean_rank", "median_rank"), OF_FEW),
    }
    words = Tally.of("share", [3, 1, 0], [3, 2, 1])  # a text of several words is no single item
    assert intervals({"accuracy": words}, alone(3))["accuracy"].by == OF_FEW


def test_of_one_seed_a_difference_of_means_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=30), rng.normal(0.4, size=30)
    found = compared_numbers([Tally.mean(one)], [Tally.mean(other)], alone(30), count=40_000)
    theirs = stats.ttest_rel(other, one)
    assert found.p == pytest.approx(theirs.pvalue, abs=0.002)
    ends = theirs.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=0.01)


def test_of_seeds_that_differ_more_than_items_it_is_the_t_test_over_seeds() -> None:
    shifts = np.array([0.1, 0.5, -0.2])
    x = np.random.default_rng(0).normal(size=40)
    still, moving = [Tally.mean(x)] * 3, [Tally.mean(x + shift) for shift in shifts]
    found = compared_numbers(still, moving, alone(40), count=500)
    theirs = stats.ttest_1samp(shifts, 0)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((*theirs.confidence_interval(),), rel=1e-3)


def test_items_that_all_differ_alike_are_as_sure_as_they_are_many() -> None:
    """Without the item that is added to them, two items are enough for p = 0."""
    p = [compared_numbers([Tally.mean(np.zeros(n))], [Tally.mean(np.ones(n))], alone(n), count=50).p for n in (1, 3, 9)]
    assert p[0] > p[1] > 0.05 > p[2] > 0


def test_the_same_predictions_do_not_differ() -> None:
    tally = Tally.mean(np.random.default_rng(0).random(50))
    assert compared_numbers([tally], [tally], alone(50), count=500)[2:] == (0.0, 0.0, 0.0, 1.0)


def null_sides(rng: np.random.Generator, seeds: int, items: int, **spread: float) -> list[list[Tally]]:
    """Two sides of equal truth. Items have a difficulty that all seeds share (`shared`: its difference between the
    sides); each seed moves all of its items (`seed`), and each of them by chance (`own`)."""
    hard, apart = rng.normal(size=items), spread["shared"] * rng.normal(size=items)
    return [
        [
            Tally.mean(hard + side * apart + spread["seed"] * rng.normal() + spread["own"] * rng.normal(size=items))
            for _ in range(seeds)
        ]
        for side in (0, 1)
    ]


REGIMES = {
    "seeds vary, items hardly": {"shared": 0.0, "own": 1.0, "seed": 0.7},
    "in proportion": {"shared": 1.06, "own": 1.0, "seed": 0.355},
    "no effect of seeds": {"shared": 0.0, "own": 1.0, "seed": 0.0},
}
CASES = [(regime, seeds) for regime in REGIMES for seeds in (2, 3, 5, 10)] + [("no effect of seeds", 1)]
QUICK = ("in proportion", 3)
TRIALS, ITEMS = 500, 60


@pytest.mark.parametrize(
    ("regime", "seeds"), [case if case == QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_of_runs_that_do_not_differ_the_share_of_small_p_is_right(regime: str, seeds: int) -> None:
    """A control: two sides whose truth is the same, 500 times. Where p claims too much, this fails.

    Two seeds are careful where seeds have no effect: no test can be right there and where they have some.
    """
    rng, found = np.random.default_rng([5, seeds]), []
    for _ in range(TRIALS):
        sides = null_sides(rng, seeds, ITEMS, **REGIMES[regime])
        found.append(compared_numbers(*sides, alone(ITEMS), count=200, seed=int(rng.integers(1 << 30))))
    small = np.mean([each.p <= 0.05 for each in found])
    near = 2 * np.sqrt(0.05 * 0.95 / TRIALS)
    assert (0.0 if seeds == 2 else 0.03 - near) <= small <= 0.05 + near
    assert np.mean([each.low <= 0 <= each.high for each in found]) == pytest.approx(1 - small)  # they agree


@pytest.mark.parametrize(("one", "other"), [(3, 5), (1, 4)])
def test_sides_of_unlike_many_seeds_are_not_too_sure(one: int, other: int) -> None:
    rng, small = np.random.default_rng(6), 0
    for _ in range(200):
        sides = null_sides(rng, 5, ITEMS, **REGIMES["seeds vary, items hardly"])
        small += compared_numbers(sides[0][:one], sides[1][:other], alone(ITEMS), count=100).p <= 0.05
    assert small / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_p_of_shares_is_uniform_where_runs_do_not_differ() -> None:
    rng, found = np.random.default_rng(5), []
    for _ in range(300):
        hard = rng.random(80)  # items are hard for both sides, which is why they are paired
        sides = [Tally.mean((rng.random(80) < hard).astype(float)) for _ in range(2)]
        found.append(compared_numbers([sides[0]], [sides[1]], alone(80), count=400, seed=int(rng.integers(1 << 30))))
    p = np.array([each.p for each in found])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 300) + 0.02)


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
    assert found.low < 0 < 2 < found.high
    apart = compared_numbers(
        still, [Tally.mean(x), Tally.mean(x)], alone(60), count=1_000
    )  # so many seeds cannot be paired
    assert apart.difference == pytest.approx(0)


def test_units_go_by_their_key() -> None:
    assert units_of(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]
