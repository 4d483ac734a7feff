"""Ranks: ties, what rounding makes of them, and their summary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.metrics.ranks import (
    NonFiniteScoresError,
    count_rivals,
    rank_scores,
    realistic_rank,
    realistic_ranks,
    rounding,
)

NOBODY = (np.array([], int), np.array([], int))


def test_realistic_rank_is_the_mean_over_ties() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.5, 0.1])
    assert realistic_rank(scores, 0) == (1 + 1 + 2 / 2, 5)
    assert realistic_rank(scores, 0, left_out=[1]) == (1 + 0 + 2 / 2, 4)
    assert realistic_rank(np.zeros(9), 3) == (5.0, 9)
    assert realistic_rank(np.array([0.5, -np.inf]), 0) == (1.0, 2)
    assert realistic_rank(np.array([0.5, np.nan]), 0, left_out=[1]) == (1.0, 1)


@pytest.mark.parametrize("scores", [[np.nan, 1.0], [1.0, np.nan], [1.0, np.inf]])
def test_scores_that_are_not_finite_have_no_rank(scores: list[float]) -> None:
    with pytest.raises(NonFiniteScoresError, match="1 of 1 items have candidates whose scores are NaN"):
        realistic_rank(np.array(scores), 0)


def test_rank_scores() -> None:
    scores = rank_scores([1, 2, 4, 1.5], [10, 10, 5, 10])
    assert scores.accuracy == 0.25
    assert scores.mrr == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 1.5) / 4)
    assert scores.hits == {1: 0.25, 3: 0.75, 10: 1.0}
    assert scores.median_rank == 1.75
    assert scores.chance == pytest.approx((0.3 + 0.2) / 4)
    assert scores.as_dict()["hits@3"] == 0.75
    with pytest.raises(ValueError, match="empty"):
        rank_scores([], [])


def test_equal_scores_get_the_middle_rank() -> None:
    ranks, competing = realistic_ranks(np.zeros((2, 11)), np.array([0, 10]), NOBODY)
    assert (ranks.tolist(), competing.tolist()) == ([6, 6], [11, 11])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_does_not_change_a_rank(scale: float) -> None:
    """What a score was batched with changes its last bits: the rank stays, whatever the scale of the scores."""
    rng = np.random.default_rng(0)
    exact = rng.integers(-4, 5, (50, 40)).astype(np.float32) * scale
    gold = rng.integers(0, 40, 50)
    rounded = exact + rng.uniform(-1e-6, 1e-6, exact.shape).astype(np.float32) * scale
    wanted, _ = realistic_ranks(exact, gold, NOBODY)
    assert (wanted % 1 > 0).any()  # there are ties
    assert realistic_ranks(rounded.astype(np.float32), gold, NOBODY)[0].tolist() == wanted.tolist()


def test_differences_above_rounding_count() -> None:
    scores = np.array([1.0, 1.0 + 1e-4, 1.0 - 1e-4])
    assert [realistic_rank(scores, i)[0] for i in range(3)] == [2, 1, 3]


def test_extreme_scores_make_nothing_equal() -> None:
    for low in (-1e9, -np.inf):
        scores = np.array([0.1, 0.2, 0.3, 0.4, low])
        assert [realistic_rank(scores, i)[0] for i in range(5)] == [4, 3, 2, 1, 5]
    assert rounding(torch.full((1, 3), -torch.inf)).tolist() == [[0.0]]
    both = torch.tensor([[torch.inf, torch.inf, 0.0]])
    better, equal = count_rivals(both, both[:, :1], torch.tensor([[False, True, True]]))
    assert (better.tolist(), equal.tolist()) == ([0], [1])
