"""The lines of metrics.jsonl as tables: none of them has cells that are empty by turns."""

from __future__ import annotations

import pandas as pd

from workbench.runs.metric_tables import long_format, step_table

METRICS = [
    {"step": 5, "mlm/loss": 4.0, "lr": 0.1},
    {"step": 10, "mlm/loss": 3.0, "lr": 0.2},
    {"step": 10, "held_out/mlm/loss": 3.5, "held_out/best": 1.0},
]


def test_the_long_format_has_no_empty_cell() -> None:
    table = pd.DataFrame(long_format(METRICS))
    assert [*table] == ["step", "split", "name", "value"]
    assert len(table) == sum(len(line) - 1 for line in METRICS)
    assert not table.isna().any().any()
    losses = table[table["name"] == "mlm/loss"].pivot(index="step", columns="split", values="value")
    assert losses.loc[10].to_dict() == {"training": 3.0, "held-out": 3.5}
    assert pd.DataFrame(METRICS).isna().any().any()


def test_a_step_has_one_row_with_each_held_out_loss_next_to_its_twin() -> None:
    table = step_table(METRICS)
    assert [column.header for column in table.columns] == ["step", "held_out/best", "mlm/loss", "held_out/mlm/loss"]
    assert [[*column.cells] for column in table.columns][2:] == [["4.0000", "3.0000"], ["", "3.5000"]]
    assert step_table(METRICS, last=1).caption == "the last 1 of 2 steps with a line"
