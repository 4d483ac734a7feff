"""What a line of metrics says about the ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from workbench.report.panels import throughput
from workbench.training.rank_statistics import slowest, statistics


def test_statistics_of_ranks() -> None:
    ranks = [{"rank_forward_seconds": 0.2, "held": 1.0}, {"rank_forward_seconds": 0.5}, {"rank_forward_seconds": 0.2}]
    record = statistics(ranks)
    assert record["rank_forward_seconds_mean"] == pytest.approx(0.3)
    assert (record["rank_forward_seconds_min"], record["rank_forward_seconds_max"]) == (0.2, 0.5)
    assert record["rank_forward_seconds_max_rank"] == 1
    assert record["held_mean"] == 1.0
    assert slowest(record) == "rank 1 1.67x slower"


@pytest.mark.parametrize("ranks", [[], [{"rank_forward_seconds": 0.5}, {"rank_forward_seconds": 0.51}]])
def test_equal_ranks_are_not_shown(ranks: list[dict[str, float]]) -> None:
    assert slowest(statistics(ranks)) == ""


def test_the_report_has_the_slowest_rank() -> None:
    lines = [statistics([{"rank_forward_seconds": 0.25}, {"rank_forward_seconds": most}]) for most in (0.5, 0.75)]
    run = SimpleNamespace(series=lambda name: [(step, line[name]) for step, line in enumerate(lines) if name in line])
    page = throughput(cast(Any, run))
    assert page is not None
    assert "slowest rank" in page
    assert "0.75" in page
