"""A trained table on several ranks: none of them could hold it, and a step takes as long with more rows."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.entity_table import on_ranks

ROWS, SIZE = 2_000_000, 64


@pytest.mark.scale
def test_ranks_train_a_table_that_none_of_them_could_hold() -> None:
    """Each rank may allocate half of the table and its moments: one rank fails, four use less than they may."""
    alone = on_ranks(1, ROWS // 4, SIZE, 4, limit=0.5)
    assert "allocate" in alone[0].failure
    found = on_ranks(4, ROWS, SIZE, 4, limit=0.5)
    assert [rank.failure for rank in found] == [""] * 4
    whole = 3 * ROWS * SIZE * 4 / 2**20
    assert all(0.2 * whole < rank.own < 0.3 * whole for rank in found)


@pytest.mark.scale
def test_the_time_of_a_step_does_not_depend_on_the_rows() -> None:
    """Of the processor, since others may use the machine. A gradient of the size of the table would make it 50 times
    as long."""
    few, many = (
        statistics.median(busy for _, busy in on_ranks(2, rows, SIZE, 24)[0].steps) for rows in (20_000, 1_000_000)
    )
    assert many < 2 * few
