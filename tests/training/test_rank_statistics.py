"""What a line of metrics says about the ranks."""

from __future__ import annotations

import pytest

from workbench.training.rank_statistics import slowest, statistics


def test_statistics_of_ranks() -> None:
    ranks = [{"rank_forward_seconds": 0.2, "held": 1.0}, {"rank_forward_seconds": 0.5}, {"rank_forward_seconds": 0.2}]
    record = statistics(ranks)
    assert record["rank_forward_seconds_mean"] == pytest.approx(0.3)
    assert (record["rank_forward_seconds_min"], record["rank_forward_seconds_max"]) == (0.2, 0.5)
    assert record["rank_forward_seconds_slowest"] == 1
    assert record["held_mean"] == 1.0
    assert slowest(record) == "rank 1 1.67x slower"


@pytest.mark.parametrize("ranks", [[], [{"rank_forward_seconds": 0.5}, {"rank_forward_seconds": 0.51}]])
def test_equal_ranks_are_not_shown(ranks: list[dict[str, float]]) -> None:
    assert slowest(statistics(ranks)) == ""
